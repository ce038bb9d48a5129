"""Sums over a prefix of the keys against sums key by key."""

import dataclasses

import pytest
import torch

from largeprompt.audit import head_statistics
from largeprompt.audit import heads as heads_module
from largeprompt.audit.prefix import Prefix, first_order
from largeprompt.audit.statistics import _doubled


def test_sums_over_a_prefix_are_those_key_by_key(random_heads):
    """Whether the prefix grew to its length or shrank to it."""
    heads = random_heads(tokens=40, causal=True)
    part, doubled = heads.at(torch.arange(25, 40)), _doubled(heads.value)
    expected = first_order(part.scored(), doubled)
    grown = (
        Prefix(0, doubled.new_zeros(()))
        .extended(9, heads.key, doubled)
        .extended(26, heads.key, doubled)
    )
    for prefix in (grown, grown.extended(33, heads.key, doubled).extended(26, heads.key, doubled)):
        for one, other in zip(
            prefix.first_order(part, part.scored(26), doubled), expected, strict=True
        ):
            torch.testing.assert_close(one, other.expand_as(one), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("cap", [None, 1.5])
def test_queries_in_any_order_have_the_same_numbers(cap, random_heads, monkeypatch):
    """In pieces of one query, each with a prefix of its own; scores with a cap are linear in no
    key.
    """
    heads = dataclasses.replace(random_heads(causal=True), cap=cap)
    positions = torch.tensor([40, 7, 49, 20, 33])
    whole = head_statistics(heads, torch.arange(50), (2,))
    monkeypatch.setitem(heads_module.CHUNK_NUMBERS, "cpu", (1, 0))
    for name, values in head_statistics(heads, positions, (2,)).items():
        torch.testing.assert_close(
            values, whole[name][..., positions], rtol=1e-10, atol=1e-12, msg=name
        )


def test_tilts_survive_keys_far_from_zero_in_single_precision(random_heads):
    heads = random_heads(tokens=400, causal=True)
    single = dataclasses.replace(
        heads, **{name: getattr(heads, name).float() for name in ("query", "key", "value")}
    )
    single = dataclasses.replace(single, key=single.key + 300)
    exact = dataclasses.replace(
        single, **{name: getattr(single, name).double() for name in ("query", "key", "value")}
    )
    doubled, last = _doubled(single.value), torch.arange(379, 400)
    prefix = Prefix(0, doubled.new_zeros(())).extended(380, single.key, doubled)
    found = prefix.first_order(single.at(last), single.at(last).scored(380), doubled).tilt
    wanted = first_order(exact.at(last).scored(), doubled).tilt
    assert float((found - wanted).abs().max() / wanted.abs().max()) < 1e-5
