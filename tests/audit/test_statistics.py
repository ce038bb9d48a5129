"""Statistics of heads against their definitions."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from largeprompt.audit import Heads, head_statistics
from largeprompt.audit import heads as heads_module
from largeprompt.audit import statistics as statistics_module
from largeprompt.measures.numerics.pareto import pareto_tail_index, tail_count


@pytest.mark.parametrize("kind", ["plain", "causal", "window", "padded"])
def test_statistics_are_their_definitions(kind, random_heads, one_by_one, masks):
    heads = random_heads(causal=kind == "causal", mask=masks(50).get(kind))
    positions = torch.tensor([9, 30, 49])
    found = head_statistics(heads, positions)
    for text, head, index in ((0, 0, 0), (1, 3, 2), (0, 2, 1)):
        scores, value = one_by_one(heads, text, head, int(positions[index]))
        weights = torch.softmax(scores, 0)
        output, mean = weights @ value, value.mean(0)
        centred = scores - scores.mean()
        affine = mean + (centred[:, None] * value).mean(0)
        third = ((centred**2)[:, None] * (value - mean)).mean(0)
        fourth = ((centred**3)[:, None] * (value - mean)).mean(0) - 3 * centred.square().mean() * (
            affine - mean
        )
        expected = {
            "tokens": len(scores),
            "score_variance": scores.var(correction=0),
            "collision": weights.square().sum(),
            "entropy": -(weights * weights.log()).sum(),
            "largest_weight": weights.max(),
            "sandwich": (weights.square() * (value - output).square().sum(-1)).sum(),
            "output": output.square().sum(),
            "mean_error": (output - mean).square().sum(),
            "affine_error": (output - affine).square().sum(),
            "third_error": (output - affine - third / 2).square().sum(),
            "fourth_error": (output - affine - third / 2 - fourth / 6).square().sum(),
            "value_spread": (value - mean).square().sum(-1).mean(),
            "mass_affine": torch.logsumexp(scores, 0)
            - math.log(len(scores))
            - scores.mean()
            - scores.var(correction=0) / 2,
        }
        for name, want in expected.items():
            assert float(found[name][text, head, index]) == pytest.approx(
                float(want), rel=1e-9, abs=1e-12
            ), name


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), shift=st.floats(-3, 3))
def test_errors_do_not_depend_on_a_shift_of_the_keys(seed, shift, random_heads):
    """Softmax does not see it; neither do the read-outs."""
    heads = random_heads(seed, tokens=20)
    moved = Heads(heads.query, heads.key + shift, heads.value, None, heads.scale)
    positions = torch.arange(0, 20, 5)
    for name in ("affine_error", "third_error", "collision", "mass_affine"):
        one, other = (
            head_statistics(heads, positions)[name],
            head_statistics(moved, positions)[name],
        )
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-10)


def test_chunks_do_not_change_the_numbers(monkeypatch, random_heads):
    heads = random_heads(causal=True)
    whole = head_statistics(heads, torch.arange(50), (2,))
    monkeypatch.setitem(heads_module.CHUNK_NUMBERS, "cpu", (3000, 0))
    pieces = head_statistics(heads, torch.arange(50), (2,))
    for name, values in whole.items():
        torch.testing.assert_close(values, pieces[name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["mixture_4_error", "affine_error", "sandwich", "entropy"])
def test_single_precision_survives_scores_far_from_zero(name, random_heads):
    """Keys with a large common part, and a head that reads next to one token."""
    for offset, scale in ((300.0, 1.0), (0.0, 40.0)):
        heads = random_heads(tokens=60, seed=4)
        heads = dataclasses.replace(heads, key=heads.key + offset, scale=scale * heads.scale)
        single = Heads(
            *(each.to(torch.float32) for each in (heads.query, heads.key, heads.value)),
            None,
            heads.scale,
        )
        again = Heads(
            *(each.to(torch.float64) for each in (single.query, single.key, single.value)),
            None,
            heads.scale,
        )
        found, exact = (
            head_statistics(each, torch.arange(0, 60, 7), (4,), 1)[name] for each in (single, again)
        )
        size = exact.abs().amax()
        assert float((found - exact).abs().max() / size) < 2e-2, (offset, scale)


@pytest.mark.parametrize("rows", ["normal", "ties", "rising", "few", "equal"])
@pytest.mark.parametrize("kept", [1, 5, 40, 300])
def test_the_largest_of_a_row_are_those_of_its_sorted_entries(rows, kept):
    draw = np.random.default_rng(0)
    made = draw.standard_normal((20, 300)).astype(np.float32)
    if rows == "ties":
        made = made.round()
    elif rows == "rising":
        made.sort(-1)
    elif rows == "few":
        made[::2, 3:290] = -np.inf
    elif rows == "equal":
        made[:] = 2.0
    found = statistics_module._selected(made, kept)
    np.testing.assert_array_equal(np.sort(found, -1), np.sort(made, -1)[:, 300 - kept :])


def test_rows_with_nan_spoil_no_others():
    made = np.random.default_rng(0).standard_normal((4, 300))
    made[1, 7] = np.nan
    found = np.sort(statistics_module._selected(made, 10), -1)
    np.testing.assert_array_equal(found[[0, 2, 3]], np.sort(made[[0, 2, 3]], -1)[:, -10:])


def test_tail_index_is_that_of_each_query_alone(monkeypatch, random_heads, one_by_one):
    """Of causal queries, whose tails differ, in pieces of a few queries and all at once."""
    heads = random_heads(tokens=120, causal=True)
    whole = head_statistics(heads, torch.arange(120))["tail_index"]
    monkeypatch.setitem(heads_module.CHUNK_NUMBERS, "cpu", (5000, 0))
    pieces = head_statistics(heads, torch.arange(120))["tail_index"]
    torch.testing.assert_close(whole, pieces, rtol=1e-9, atol=0)
    for position in (3, 20, 40, 77, 119):
        scores, _ = one_by_one(heads, 1, 3, position)
        expected = pareto_tail_index(scores.topk(tail_count(len(scores)) + 1).values)
        torch.testing.assert_close(pieces[1, 3, position], expected, rtol=1e-9, atol=0)


def test_one_token_has_no_spread_in_single_precision(random_heads):
    """The first causal query reads one key: what cancels there is as small as double precision
    makes it.
    """
    heads = random_heads(causal=True)
    single = dataclasses.replace(
        heads, **{name: getattr(heads, name).float() for name in ("query", "key", "value")}
    )
    found = head_statistics(single, torch.arange(50))
    for name in ("value_spread", "sandwich"):
        assert float((found[name][..., 0] / found["output"][..., 0]).max()) < 1e-14, name


@pytest.mark.parametrize(("offset", "scale"), [(100.0, 1.0), (100.0, 40.0), (0.0, 40.0)])
def test_sandwich_in_single_precision(offset, scale, random_heads):
    """Values with a large common part, and heads that read next to one token: each query against
    its own size.
    """
    heads = random_heads(tokens=60, seed=4)
    heads = dataclasses.replace(heads, value=heads.value + offset, scale=scale * heads.scale)
    single = dataclasses.replace(
        heads, **{name: getattr(heads, name).float() for name in ("query", "key", "value")}
    )
    exact = dataclasses.replace(
        single, **{name: getattr(single, name).double() for name in ("query", "key", "value")}
    )
    found, wanted = (head_statistics(each, torch.arange(60)) for each in (single, exact))
    size = wanted["value_spread"] * wanted["collision"]
    assert float(((found["sandwich"] - wanted["sandwich"]).abs() / size).max()) < 2e-4


def test_what_is_left_beside_one_token_in_single_precision(random_heads):
    """A sandwich of 10⁻⁶ of the output and less is known to a fiftieth of itself: the largest
    weight does not drown the others.
    """
    heads = random_heads(tokens=60, seed=4)
    single = dataclasses.replace(
        heads,
        **{name: getattr(heads, name).float() for name in ("query", "key", "value")},
        scale=8.0,
    )
    exact = dataclasses.replace(
        single, **{name: getattr(single, name).double() for name in ("query", "key", "value")}
    )
    found, wanted = (
        head_statistics(each, torch.arange(60))["sandwich"] for each in (single, exact)
    )
    small = (wanted < 1e-6) & (wanted > 1e-9)
    assert int(small.sum()) > 10
    torch.testing.assert_close(found[small], wanted[small], rtol=2e-2, atol=0)
