"""Models of transformers are seen as they are, and left as they were."""

import dataclasses

import numpy as np
import pytest
import torch
from tiny_models import AUDITED, LAYERS, REFUSED, tiny_inputs, tiny_model

from largeprompt.audit import (
    AuditError,
    AuditWarning,
    audit_model,
    head_statistics,
    linearize,
    read_out,
    watching,
)
from largeprompt.audit.adapters.transformers import (
    attending_layers,
    silent_layers,
    tokens_read,
    with_atom,
)
from largeprompt.audit.collect import check_parity
from largeprompt.audit.statistics import measured
from largeprompt.errors import InvalidArgumentError

# which some architectures use on import
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script.* is deprecated")


def attention(heads):
    """Softmax attention by its definition."""
    key, value = (
        each.repeat_interleave(heads.count // heads.groups, 1) for each in (heads.key, heads.value)
    )
    scores = heads.scale * heads.query @ key.mT
    if heads.cap is not None:
        scores = heads.cap * torch.tanh(scores / heads.cap)
    if heads.mask is not None:
        scores = (
            scores.masked_fill(~heads.mask, -torch.inf)
            if heads.mask.dtype == torch.bool
            else scores + heads.mask
        )
    elif heads.causal:
        scores = scores.masked_fill(
            torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1 + heads.atoms), -torch.inf
        )
    return torch.softmax(scores, -1) @ value


@pytest.mark.parametrize("name", AUDITED)
def test_every_architecture(name):
    """Outputs recomputed from what was seen are each head's own, and the model's when put in their
    place; and a whole audit.
    """
    model = tiny_model(name)
    inputs = tiny_inputs(model)
    seen = []

    def recomputed(layer, heads, output):
        seen.append(layer)
        # eager softmax is in float32
        torch.testing.assert_close(attention(heads), output, rtol=1e-6, atol=1e-6)
        return attention(heads)

    with torch.no_grad():
        before = model(**inputs)[0]
        with watching(model, recomputed):
            after = model(**inputs)[0]
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-4 * float(before.abs().max()))
    expected = LAYERS.get(name, [0, 1])
    assert seen == attending_layers(model) == expected
    data = audit_model(model, inputs, positions=4, components=(2,))
    assert data.layer.values.tolist() == expected
    assert data.sizes["head"] == 2
    assert list(data.attrs.get("silent_layers", [])) == silent_layers(model)
    assert bool(np.isfinite(data.affine_error.isel(position=-1)).all())
    assert float(data.score_variance.max()) > 1e-4


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_audited_is_refused_with_the_reason(name):
    model = tiny_model(name)
    with pytest.raises(AuditError, match=REFUSED[name][1]):
        audit_model(model, tiny_inputs(model))


def test_caps_sinks_and_biases_matter_here():
    """Without them the recomputed outputs are wrong, so that the comparisons above can fail."""
    for name, change in (
        ("Gemma2ForCausalLM", lambda heads: dataclasses.replace(heads, cap=None)),
        (
            "GptOssForCausalLM",
            lambda heads: dataclasses.replace(heads, query=heads.query * (torch.arange(17) < 16)),
        ),
        ("T5Model/encoder", lambda heads: dataclasses.replace(heads, mask=None)),
    ):
        if name not in AUDITED:
            continue
        model, wrong = tiny_model(name), []
        with (
            torch.no_grad(),
            watching(
                model,
                lambda layer, heads, output: wrong.append(attention(change(heads)) - output),  # noqa: B023
            ),
        ):
            model(**tiny_inputs(model))
        assert float(wrong[0].abs().max()) > 1e-3, name


def test_an_atom_is_a_key_of_value_zero(random_heads):
    heads = random_heads(causal=True)
    score = torch.tensor([2.0, -1.0, 0.0, 5.0], dtype=torch.float64)
    found = attention(with_atom(heads, score))
    plain = [rows for _, rows in heads.rows()]
    normalizer = torch.cat([rows.whole().logsumexp(-1, keepdim=True) for rows in plain], 2)
    share = 1 / (1 + torch.exp(score[None, :, None, None] - normalizer))
    torch.testing.assert_close(found, share * attention(heads))
    masked = with_atom(
        dataclasses.replace(
            heads, mask=torch.ones(50, 50, dtype=torch.bool).tril()[None, None], causal=False
        ),
        score,
    )
    torch.testing.assert_close(attention(masked), found)
    exact = read_out(with_atom(heads, torch.full((4,), 40.0, dtype=torch.float64)), "mixture", 1, 0)
    # mixtures read it exactly, whatever is asked of first tokens
    assert float(exact.abs().max()) < 1e-9
    with pytest.raises(AuditError, match="both learned sinks and a soft cap"):
        with_atom(dataclasses.replace(heads, cap=1.0), score)


def test_read_outs_of_capped_scores(random_heads):
    """v + Cov(v, s) with the capped scores s, for causal prefixes."""
    heads = dataclasses.replace(random_heads(causal=True), cap=0.7)
    text, head, position = 1, 3, 30
    key, value = heads.key[text, 1, : position + 1], heads.value[text, 1, : position + 1]
    scores = 0.7 * torch.tanh(heads.scale * key @ heads.query[text, head, position] / 0.7)
    expected = value.mean(0) + (value - value.mean(0)).T @ (scores - scores.mean()) / (position + 1)
    torch.testing.assert_close(read_out(heads, "affine")[text, head, position], expected)


@pytest.mark.skipif(
    "T5Model/encoder" not in AUDITED,
    reason="transformers 5.0 does not put T5 through its interface",
)
def test_position_biases_weigh_the_keys():
    """The affine read-out is that of the measure Σ e^b δ over keys and values, b the biases of T5's
    table; by its definition.
    """
    model = tiny_model("T5Model/encoder")
    inputs, seen = tiny_inputs(model), {}
    with torch.no_grad(), watching(model, lambda layer, heads, output: seen.update({layer: heads})):
        model(**inputs)
    table = model.block[0].layer[0].SelfAttention.compute_bias(64, 64).detach()
    head, query = 1, 40
    own = torch.softmax(table[0, head, query], 0)
    key, value = seen[1].key[0, head], seen[1].value[0, head]
    scores = key @ seen[1].query[0, head, query]  # T5 does not scale them
    mean = own @ value
    affine = mean + (own * (scores - own @ scores)) @ value
    output = torch.softmax(scores + table[0, head, query], 0) @ value
    data = audit_model(model, inputs, positions=[query], components=()).isel(
        text=0, layer=1, head=head, position=0
    )
    assert float(data.affine_error) == pytest.approx(
        float((output - affine).norm() / output.norm())
    )
    assert float(data.mean_error) == pytest.approx(float((output - mean).norm() / output.norm()))
    assert float(data.score_variance) == pytest.approx(
        float(own @ (scores - own @ scores).square())
    )
    assert float(data.weighed_tokens) == pytest.approx(1 / float(own.square().sum()))
    torch.testing.assert_close(read_out(seen[1], "affine")[0, head, query], affine)


def test_inputs_that_are_no_texts():
    model = tiny_model("ViTModel")
    image = tiny_inputs(model)["pixel_values"]
    assert tokens_read(model, {"pixel_values": image}) == 65
    both = audit_model(
        model, {"pixel_values": torch.cat([image, -image])}, positions=3, components=()
    )
    alone = audit_model(model, {"pixel_values": -image}, positions=3, components=())
    np.testing.assert_allclose(both.score_variance[1], alone.score_variance[0])
    assert both.attrs["tokens"] == 65
    with pytest.raises(InvalidArgumentError, match="lengths"):
        audit_model(model, {"pixel_values": image}, lengths=[10])
    for bad in ({}, {"pixel_values": image, "other": torch.zeros(2)}):
        with pytest.raises(InvalidArgumentError, match="inputs"):
            audit_model(model, bad)


def test_layers_that_do_not_attend_cannot_be_chosen():
    model = tiny_model("Lfm2ForCausalLM")
    with pytest.raises(InvalidArgumentError, match=r"layers that attend: \[1\]"):
        audit_model(model, tiny_inputs(model), layers=[0])
    with (
        pytest.raises(InvalidArgumentError, match=r"layers that attend: \[1\]"),
        linearize(model, [(2, 0)]),
    ):
        pass


def test_flex_attention_is_switched_for_the_pass_and_back(built, tokens):
    model = built("llama").to(torch.float64)
    model.set_attn_implementation("sdpa")
    expected = audit_model(model, tokens(), positions=4, components=())
    model.set_attn_implementation("flex_attention")
    with pytest.warns(
        AuditWarning,
        match="runs 'flex_attention', which cannot be looked into; while it is audited it runs "
        "'sdpa'",
    ):
        found = audit_model(model, tokens(), positions=4, components=())
    assert model.config._attn_implementation == "flex_attention"
    model.set_attn_implementation("sdpa")
    np.testing.assert_array_equal(found.affine_error, expected.affine_error)


def test_flash_attention_is_switched_for_the_pass_and_back(built, tokens):
    model = built("llama").to(torch.float64)
    for config in (model.config, model.model.config):
        # which cannot be installed everywhere
        config._attn_implementation_internal = "flash_attention_2"
    with pytest.warns(AuditWarning, match="runs 'flash_attention_2', which cannot be looked into"):
        audit_model(model, tokens(), positions=4, components=())
    assert model.config._attn_implementation == "flash_attention_2"
    model.set_attn_implementation("sdpa")


def test_padded_passes_are_seen_as_they_are(architecture, built, padded):
    """A padded batch through the interface itself: parity, and the numbers of each text alone."""
    model = built(architecture).to(torch.float64)
    model.set_attn_implementation("sdpa")
    found = {}

    def look(layer, heads, output):
        some = torch.tensor([20, 44])
        check_parity(layer, measured(heads, some), heads, output.index_select(2, some))
        found[layer] = head_statistics(heads, torch.tensor([20, 44]), (3,), 1)

    with torch.no_grad(), watching(model, look):
        model(**padded())
    alone = audit_model(model, padded(), positions=[20, 44], components=(3,))
    for layer in range(2):
        for name in ("score_variance", "tokens", "score_kurtosis"):
            np.testing.assert_allclose(
                found[layer][name].numpy()[1], alone[name].values[1, layer], rtol=1e-6, atol=1e-9
            )


def test_watching_changes_nothing_and_is_undone_after_an_error(architecture, built, tokens):
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    model = built(architecture).to(torch.float32)
    model.set_attn_implementation("sdpa")
    before, names = model(**tokens())[0], set(ALL_ATTENTION_FUNCTIONS.valid_keys())
    with watching(model, lambda layer, heads, output: None):
        assert set(ALL_ATTENTION_FUNCTIONS.valid_keys()) != names
        assert torch.equal(model(**tokens())[0], before)

    def broken(layer, heads, output):
        raise KeyError("on purpose")

    with pytest.raises(KeyError, match="on purpose"), watching(model, broken):
        model(**tokens())
    assert set(ALL_ATTENTION_FUNCTIONS.valid_keys()) == names
    assert model.config._attn_implementation == "sdpa"
    assert torch.equal(model(**tokens())[0], before)
