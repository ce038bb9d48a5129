"""Bare tensors of a layer: their verdicts, and what is refused."""

import copy
import dataclasses
import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from largeprompt.audit import (
    FINDINGS,
    Heads,
    audit_heads,
    audit_model,
    head_statistics,
    read_out,
    summary,
)
from largeprompt.errors import InvalidArgumentError


def test_bad_heads_are_refused(random_heads):
    good = random_heads()
    with pytest.raises(InvalidArgumentError, match="four dimensions"):
        Heads(good.query[0], good.key, good.value, None, 1.0)
    with pytest.raises(InvalidArgumentError, match="heads a multiple"):
        Heads(good.query[:, :3], good.key, good.value, None, 1.0)
    with pytest.raises(InvalidArgumentError, match="mask"):
        Heads(good.query, good.key, good.value, torch.ones(2, 1, 50, 49, dtype=torch.bool), 1.0)
    with pytest.raises(InvalidArgumentError, match="mask: got dtype"):
        Heads(good.query, good.key, good.value, torch.ones(1, 1, 50, 50, dtype=torch.int64), 1.0)
    with pytest.raises(InvalidArgumentError, match="kind"):
        read_out(good, "cubic")


def test_mask_and_scale_are_optional_and_numpy_is_taken(random_heads):
    made = random_heads()
    plain = Heads(*(each.numpy() for each in (made.query, made.key, made.value)))
    assert plain.scale == 5**-0.5
    assert plain.mask is None
    torch.testing.assert_close(plain.query, made.query)
    seen = np.ones((1, 1, 50, 50), dtype=bool)
    assert Heads(plain.query, made.key, made.value.numpy(), seen).mask.dtype == torch.bool
    with pytest.raises(InvalidArgumentError, match="query: got"):
        Heads(np.ones((1, 2, 3, 4), dtype=int), made.key, made.value)


def test_tokens_before_heads_give_a_warning():
    tokens = torch.randn(1, 200, 4, 8)
    with pytest.warns(UserWarning, match="200 heads read only 4 tokens.*transpose"):
        Heads(tokens, tokens, tokens)


def test_bare_tensors_get_verdicts(planted):
    data = audit_heads(planted("linear"), positions=list(range(16)), components=())
    assert dict(data.sizes) == {"text": 6, "layer": 1, "head": 1, "position": 16}
    assert FINDINGS[int(summary(data).finding.item())] == "moments"
    learning = dataclasses.replace(
        planted("linear"), value=planted("linear").value.requires_grad_()
    )
    assert bool(audit_heads(learning, positions=4, components=()).affine_error.notnull().all())
    with pytest.raises(InvalidArgumentError, match="positions"):
        audit_heads(planted("linear"), positions=[400])


def test_a_position_bias_is_the_number_of_copies_of_a_key():
    """A bias of ln 3 does what three copies of key and value do, to every moment and read-out;
    forbidden keys have none.
    """
    draw = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(1, 2, count, 4, generator=draw, dtype=torch.float64) for count in (3, 200, 200)
    )
    copies = torch.randint(0, 4, (200,), generator=draw)
    copies[0] = 1
    mask = (
        torch.log(copies.double())
        .clamp_min(torch.finfo(torch.float64).min)[None, None, None]
        .expand(1, 1, 3, -1)
    )
    again = torch.repeat_interleave(torch.arange(200), copies)
    biased = Heads(query, key, value, mask, 0.7)
    copied = Heads(query, key[:, :, again], value[:, :, again], None, 0.7)
    at = torch.arange(3)
    found, expected = (head_statistics(each, at, (1,), 1) for each in (biased, copied))
    # which count keys one by one
    names = set(found) - {"tokens", "collision", "entropy", "largest_weight", "weighed_tokens"}
    assert {"affine_error", "fourth_error", "score_kurtosis", "mixture_1_error"} <= names
    for name in names:
        torch.testing.assert_close(found[name], expected[name], msg=name)
    without = head_statistics(dataclasses.replace(biased, mask=None), at)
    assert not torch.allclose(found["affine_error"], without["affine_error"])
    for kind in ("mean", "affine", "mixture"):
        torch.testing.assert_close(read_out(biased, kind, 1), read_out(copied, kind, 1))
    own = copies.double() / copies.sum()
    torch.testing.assert_close(found["weighed_tokens"], (1 / own.square().sum()).expand(1, 2, 3))
    assert float(found["tokens"].max()) == int((copies > 0).sum())


def test_a_mask_that_only_forbids_is_no_bias(random_heads):
    allowed = torch.ones(50, 50, dtype=torch.bool).tril()[None, None]
    numbers = torch.zeros(1, 1, 50, 50, dtype=torch.float64).masked_fill(~allowed, -torch.inf)
    assert not random_heads(mask=numbers).biased
    assert random_heads(mask=numbers - 1).biased


@pytest.fixture(scope="module")
def recipes(tmp_path_factory):
    """The functions of the how-to page, as a module: nnsight reads their source."""
    page = (Path(__file__).parents[2] / "docs" / "howto" / "audit_a_model.md").read_text(
        encoding="utf-8"
    )
    blocks = [
        block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "\ndef " in block
    ]
    file = tmp_path_factory.mktemp("recipes") / "recipes.py"
    file.write_text("\n".join(blocks), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("recipes", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("turned", ["", "rot_"])
def test_heads_come_from_a_cache(recipes, random_heads, turned):
    """A cache is a mapping from names to tensors (batch, tokens, heads, width); rotated queries and
    keys come before plain ones.
    """
    heads = random_heads(causal=True)
    parts = {f"{turned}q": heads.query, f"{turned}k": heads.key, "v": heads.value}
    parts |= {"q": 0 * heads.query, "k": 0 * heads.key} if turned else {}
    found = recipes.heads_in_cache(
        {f"blocks.2.attn.hook_{name}": part.transpose(1, 2) for name, part in parts.items()}, 2
    )
    for name in ("query", "key", "value"):
        torch.testing.assert_close(getattr(found, name), getattr(heads, name))
    assert (found.causal, found.scale) == (True, heads.query.shape[-1] ** -0.5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_heads_come_from_transformer_lens(recipes, built, tokens, kind):
    builder = pytest.importorskip("transformer_lens.model_bridge.sources._bridge_builder")
    model = copy.deepcopy(built(kind).to(torch.float32))
    bridge = builder.build_bridge_from_module(model, type(model).__name__, hf_config=model.config)
    with torch.no_grad():
        _, cache = bridge.run_with_cache(tokens()["input_ids"])
        heads = recipes.heads_in_cache(cache, 1)
        read = torch.cat([rows.read(rows.weights()) for _, rows in heads.rows()], 2)
    torch.testing.assert_close(read.transpose(1, 2), cache["blocks.1.attn.hook_z"])


@pytest.mark.filterwarnings("ignore")
def test_heads_come_from_nnsight(recipes, built, tokens):
    nnsight = pytest.importorskip("nnsight")
    model = copy.deepcopy(built("llama").to(torch.float32))
    heads = recipes.heads_in_trace(nnsight.NNsight(model), tokens(), 1)
    found, expected = (
        audit_heads(heads, components=()),
        audit_model(model, tokens(), layers=[1], components=()),
    )
    np.testing.assert_allclose(found.affine_error[:, 0], expected.affine_error[:, 0], rtol=1e-4)
