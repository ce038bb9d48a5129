"""Prefixes of one pass, autocorrelations and effective lengths."""

import math

import numpy as np
import pytest
import torch

from largeprompt.audit import Heads, audit_heads
from largeprompt.studies.languagemodel.measure import (
    Prefixes,
    autocorrelation,
    effective_share,
    prefix,
    query_places,
    state_errors,
)


def heads(tokens=128, width=4, seed=0, key=None):
    draw = torch.Generator().manual_seed(seed)
    query, value = (
        torch.randn(1, 2, tokens, width, generator=draw, dtype=torch.float64) for _ in range(2)
    )
    made = torch.randn(1, 2, tokens, width, generator=draw, dtype=torch.float64)
    return Heads(query, made if key is None else key, value, None, 0.5, causal=True)


def test_queries_stand_in_the_last_eighth():
    for length in (64, 100, 8192):
        places = query_places(length, 8)
        assert len(places) == 8
        assert places[-1] == length - 1
        assert places[0] >= length - 1 - length / 8


def test_a_prefix_of_one_pass_is_the_audit_of_the_shorter_text():
    whole = heads()
    seen = Prefixes((64, 128), 4, (0, 8), (0, 1), 1)
    seen(3, whole, torch.zeros(1, 2, 128, 4, dtype=torch.float64))
    alone = Heads(
        whole.query[:, :, :64], whole.key[:, :, :64], whole.value[:, :, :64], None, 0.5, causal=True
    )
    expected = audit_heads(alone, positions=query_places(64, 4), components=(), sinks=0)
    found = seen.audit("read").sel(length=64, layer=3)
    for name in ("affine_error", "score_variance", "value_spread", "tokens"):
        np.testing.assert_allclose(
            found[name].values, expected[name].isel(layer=0).values, rtol=1e-9
        )
    without = seen.audit("left out")
    np.testing.assert_array_equal(without.length, [63, 127])
    np.testing.assert_array_equal(
        without.tokens.isel(length=0, text=0, layer=0, head=0), np.array(query_places(64, 4))
    )


def test_state_errors_by_hand():
    some, where = heads(64), torch.tensor([40, 63])
    weights = torch.softmax(
        (0.5 * some.query @ some.key.mT).masked_fill(~torch.ones(64, 64).tril().bool(), -torch.inf),
        -1,
    )
    output = weights @ some.value
    found = state_errors(some, output, where, [0, 5], [0, 40], 1)
    assert np.isnan(found[1]).all()  # forty clusters are no smaller than the cache
    near = torch.arange(64) > where[:, None] - 5
    near[:, 0] = True
    kept = weights[:, :, where] * near
    read = kept / kept.sum(-1, keepdim=True) @ some.value
    exact = output[:, :, where]
    expected = ((read - exact).square().sum((-1, -2)) / exact.square().sum((-1, -2))).sqrt()[0]
    np.testing.assert_allclose(found[0, 1], expected.numpy(), rtol=1e-12)


def test_autocorrelation_of_keys_that_go_together():
    draw = torch.Generator().manual_seed(1)
    steps = torch.randn(1, 2, 4000, 4, generator=draw, dtype=torch.float64)
    key = torch.zeros_like(steps)
    for i in range(1, 4000):
        key[:, :, i] = 0.7 * key[:, :, i - 1] + steps[:, :, i]
    found = autocorrelation(heads(4000, key=key), torch.arange(3900, 4000, 10))
    taper = 1 - np.arange(1, 4) / 129
    # seven standard errors
    np.testing.assert_allclose(found[:, :3] / taper, np.tile([0.7, 0.49, 0.343], (2, 1)), atol=0.12)
    independent = autocorrelation(heads(4000), torch.arange(3900, 4000, 10))
    assert np.abs(independent[:, :3]).max() < 0.1


def test_effective_share_by_the_formula():
    c, q, tilt, spread, length = np.array([0.5, 0.2]), 0.8, 0.4, 3.0, 100
    weights = np.array([2 * (1 - 1 / length), 2 * (1 - 2 / length)])
    lagged = (weights * np.exp(q * (c - 1)) * (c * spread + c**2 * tilt)).sum()
    assert effective_share(length, q, tilt, spread, c) == pytest.approx(
        (spread + tilt) / (spread + tilt + lagged)
    )
    assert effective_share(length, q, tilt, spread, np.zeros(2)) == pytest.approx(1.0)
    assert math.isnan(effective_share(length, math.nan, tilt, spread, c))


def test_prefix_without_its_first_token():
    whole = heads()
    assert torch.equal(prefix(whole, 50, 1).key, whole.key[:, :, 1:50])
