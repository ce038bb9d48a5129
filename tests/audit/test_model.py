"""The audit on real architectures: parity, padding, choices, and what is refused."""

import copy

import numpy as np
import pytest
import torch

from largeprompt.audit import AuditError, audit_model, linearize, summary
from largeprompt.errors import InvalidArgumentError

transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_every_architecture_passes_parity(architecture, dtype, implementation, built, padded):
    model = built(architecture).to(dtype)
    model.set_attn_implementation(implementation)
    data = audit_model(model, padded(), positions=[10, 40, -1], components=())
    assert dict(data.sizes) == {"text": 2, "layer": 2, "head": 4, "position": 3}
    seen = {"mistral": [[11, 20, 20]] * 2, "bert": [[60] * 3, [45] * 3]}.get(
        architecture, [[11, 41, 60], [11, 41, 45]]
    )
    np.testing.assert_array_equal(data.tokens.isel(layer=0, head=0), seen)
    assert bool(data.affine_error.notnull().all())
    assert model.config._attn_implementation == implementation


def test_a_text_has_the_same_numbers_in_any_company_and_padded_on_either_side(built, padded):
    model = built("gpt2").to(torch.float64)
    short = {"input_ids": padded()["input_ids"][1:, :45]}
    alone = audit_model(model, short, positions=8)
    left = {name: value.flip(1) for name, value in padded().items()}
    left["input_ids"][1, 15:] = short["input_ids"]
    for company in (padded(), left):
        data = audit_model(model, company, positions=8).isel(text=1)
        for name in ("affine_error", "mixture_8_error", "query"):
            np.testing.assert_allclose(data[name], alone[name].isel(text=0), rtol=1e-9)


def test_lengths_shorter_than_the_number_of_positions(built, tokens, padded):
    data = audit_model(
        built("bert").to(torch.float32), tokens(), lengths=[20, 60], positions=50, components=()
    )
    assert data.affine_error.notnull().sum("position").isel(
        text=0, layer=0, head=0
    ).values.tolist() == [20, 50]
    assert set(np.unique(data.regime)) <= {-1, 0, 1, 2}
    with pytest.raises(InvalidArgumentError, match="45 tokens of the shortest"):
        audit_model(built("bert"), padded(), lengths=[50])


def test_a_small_head_is_checked_too(built, tokens):
    """Its outputs are far below those of the others, and wrong by as much as they are large."""
    model = copy.deepcopy(built("llama").to(torch.float32))
    with torch.no_grad():
        model.model.layers[0].self_attn.v_proj.weight[:8] *= 3e-5
    with pytest.raises(AuditError, match="L0H0"), linearize(model, [(0, 0)], "mean"):
        audit_model(model, tokens(), components=())


@pytest.mark.parametrize("name", ["distilbert", "albert"])
def test_models_whose_layers_have_no_number(name, tokens):
    """In ALBERT all layers are one module."""
    torch.manual_seed(0)
    if name == "distilbert":
        sizes = {
            "dim": 32,
            "hidden_dim": 48,
            "n_layers": 3,
            "n_heads": 4,
            "max_position_embeddings": 128,
        }
        model = transformers.DistilBertModel(
            transformers.DistilBertConfig(vocab_size=97, **sizes)
        ).eval()
    else:
        sizes = SIZES | {
            "num_hidden_layers": 3,
            "embedding_size": 16,
            "max_position_embeddings": 128,
        }
        model = transformers.AlbertModel(transformers.AlbertConfig(**sizes)).eval()
    data = audit_model(model, tokens(), positions=4, components=())
    assert data.sizes["layer"] == 3
    again = audit_model(model, tokens(), positions=4, components=(), layers=[2])
    np.testing.assert_allclose(
        again.affine_error.sel(layer=2), data.affine_error.sel(layer=2), rtol=1e-6
    )
    variance = data.score_variance.isel(text=0).mean(("head", "position")).values
    assert len(set(np.round(variance, 12))) == 3  # layers read different tokens


def test_parity_is_refused_with_layer_and_head(monkeypatch, built, tokens):
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
    with pytest.raises(AuditError, match="L0H2"):
        audit_model(model, tokens(), components=())


def test_statistics_are_those_of_the_attention_map(built, tokens):
    """Against output_attentions=True, the map itself."""
    model = built("llama").to(torch.float64)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        maps = model(**tokens(), output_attentions=True).attentions
    data = audit_model(model, tokens(), positions=[30, 59], components=())
    for layer in range(2):
        rows = maps[layer][0][:, [30, 59]]
        np.testing.assert_allclose(
            1 / data.effective_tokens.isel(text=0).sel(layer=layer),
            rows.square().sum(-1),
            rtol=1e-6,
        )
        np.testing.assert_allclose(
            data.largest_weight.isel(text=0).sel(layer=layer), rows.amax(-1), rtol=1e-6
        )
    model.set_attn_implementation("sdpa")


def test_lengths_layers_heads_and_positions_are_chosen(built, tokens):
    model = built("bert").to(torch.float32)
    data = audit_model(
        model,
        tokens(),
        layers=[1],
        heads=[0, 3],
        lengths=[20, 60],
        positions=5,
        components=(2,),
        sinks=1,
    )
    assert dict(data.sizes) == {"length": 2, "text": 1, "layer": 1, "head": 2, "position": 5}
    alone = audit_model(
        model,
        {"input_ids": tokens()["input_ids"][:, :20]},
        layers=[1],
        heads=[0, 3],
        positions=5,
        components=(2,),
        sinks=1,
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


def test_what_cannot_be_audited_is_refused(tokens):
    with pytest.raises(InvalidArgumentError, match="PreTrainedModel"):
        audit_model(torch.nn.Linear(2, 2), tokens())
    tiny = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "vocab_size": 97}
    with pytest.raises(AuditError, match="encoder-decoder"):
        audit_model(
            transformers.T5ForConditionalGeneration(
                transformers.T5Config(**tiny, decoder_start_token_id=0)
            ),
            tokens(),
        )

    class Other(transformers.PreTrainedModel):
        config_class = transformers.BertConfig

    with pytest.raises(AuditError, match="no softmax attention"):
        audit_model(Other(transformers.BertConfig(**SIZES)), tokens())
