"""Models with replaced heads."""

import numpy as np
import pytest
import torch

from largeprompt.audit import (
    audit_model,
    linearize,
    load_model,
    read_texts,
    replacement_curves,
    summary,
)
from largeprompt.errors import InvalidArgumentError

transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2}


def test_replacing_no_head_or_by_exact_atoms_changes_nothing(architecture, built, tokens):
    model = built(architecture).to(torch.float64)
    model.set_attn_implementation("sdpa")
    inputs = tokens(length=20)
    before = model(**inputs)[0]
    with linearize(model, []):
        assert torch.equal(model(**inputs)[0], before)
    with linearize(model, [(0, 1), (1, 3)], "mixture", components=1, sinks=20):
        torch.testing.assert_close(model(**inputs)[0], before, rtol=1e-8, atol=1e-9)
    with linearize(model, [(0, 1)], "mean"):
        assert not torch.allclose(model(**inputs)[0], before, atol=1e-6)
    for bad in ((2, 0), (0, 4), (-1, 0)):
        with pytest.raises(InvalidArgumentError, match="heads"), linearize(model, [bad]):
            pass


def test_a_model_left_in_training_mode_is_compared_without_dropout(tokens):
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=97, n_embd=32, n_layer=2, n_head=4, **TOKENS)
    )
    model.train()
    curves = replacement_curves(model, tokens(), [(0, 0)], [0], components=0, randoms=1)
    assert "mixture" not in curves.curve
    np.testing.assert_allclose(curves.cosine, 1.0, rtol=1e-12)
    np.testing.assert_allclose(curves.kl, 0.0, atol=1e-6)
    assert model.training


def test_a_classifier_has_no_next_token(tokens):
    model = transformers.BertForSequenceClassification(
        transformers.BertConfig(**SIZES, max_position_embeddings=128)
    ).eval()
    curves = replacement_curves(model, tokens(), [(0, 0), (1, 1)], [2], components=0, randoms=1)
    assert bool(curves.kl.isnull().all())
    assert bool(curves.cosine.notnull().all())


def test_curves_of_a_language_model(built, tokens):
    model = built("llama").to(torch.float32)
    order = [(layer, head) for layer in range(2) for head in range(4)]
    curves = replacement_curves(model, tokens(), order, [4, 8], components=2, randoms=1)
    assert bool((curves.kl >= -1e-6).all())
    everything = curves.sel(replaced=8)
    np.testing.assert_allclose(
        everything.sel(curve="audit").cosine, everything.sel(curve="reverse").cosine, rtol=1e-6
    )
    assert bool(np.isfinite(curves.loss_change).all())


def test_a_pretrained_encoder(tmp_path, encoder):
    """72 heads: some read only moments, some select; and the order of the audit
    is worth something.
    """
    model = load_model(encoder)
    text = tmp_path / "text.txt"
    text.write_text(
        "Softmax attention over a long prompt reads the law of its tokens through an exponential "
        "tilt. " * 12,
        encoding="utf-8",
    )
    inputs = read_texts(encoder, [text], 160)
    data = audit_model(model, inputs, positions=16, components=())
    heads = summary(data)
    assert heads.affine_error.shape == (6, 12)
    assert 0 < float(heads.affine_error.min()) < 0.15 < 0.6 < float(heads.affine_error.max())
    assert float(heads.score_variance.max()) > 10
    pairs = sorted(
        ((int(i), int(j)) for i in range(6) for j in range(12)),
        key=lambda pair: float(heads.affine_error.values[pair]),
    )
    curves = replacement_curves(model, inputs, pairs, [36], randoms=2, components=2)
    cosine = {
        str(name): float(curves.cosine.sel(curve=name).item()) for name in curves.curve.values
    }
    assert cosine["reverse"] < cosine["audit"]
    assert cosine["random"] < cosine["audit"]


def test_curves_are_means_over_texts_with_standard_errors(built, tokens):
    model, order = (
        built("llama").to(torch.float32),
        [(layer, head) for layer in range(2) for head in range(4)],
    )
    both = tokens(batch=2)
    options = {"components": 0, "randoms": 1, "compared": [2]}
    curves = replacement_curves(model, both, order, [2, 4, 8], **options)
    alone = [
        replacement_curves(
            model, {"input_ids": both["input_ids"][text : text + 1]}, order, [2, 4, 8], **options
        )
        for text in (0, 1)
    ]
    for name in ("cosine", "kl", "loss_change"):
        each = np.stack([one[name].values for one in alone])
        np.testing.assert_allclose(curves[name], each.mean(0), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(
            curves[f"{name}_error"], each.std(0, ddof=1) / 2**0.5, rtol=1e-2, atol=1e-6
        )
        assert bool(alone[0][f"{name}_error"].isnull().all())
    # all heads, in whichever order
    assert curves.cosine.sel(curve="reverse").notnull().values.tolist() == [True, False, True]
    assert curves.cosine.sel(curve="mean").notnull().values.tolist() == [True, False, False]
    assert bool(curves.cosine.sel(curve="audit").notnull().all())
