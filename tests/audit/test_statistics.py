"""Statistics of heads against their definitions."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from largeprompt.audit import Heads, head_statistics
from largeprompt.audit import heads as heads_module


@pytest.mark.parametrize("kind", ["plain", "causal", "window", "padded"])
def test_statistics_are_their_definitions(kind, random_heads, one_by_one, masks):
    heads = random_heads(causal=kind == "causal", mask=masks(50).get(kind))
    positions = torch.tensor([9, 30, 49])
    found = head_statistics(heads, positions)
    for text, head, index in ((0, 0, 0), (1, 3, 2), (0, 2, 1)):
        scores, value = one_by_one(heads, text, head, int(positions[index]))
        weights = torch.softmax(scores, 0)
        output, mean = weights @ value, value.mean(0)
        centered = scores - scores.mean()
        affine = mean + (centered[:, None] * value).mean(0)
        third = ((centered**2)[:, None] * (value - mean)).mean(0)
        fourth = ((centered**3)[:, None] * (value - mean)).mean(
            0
        ) - 3 * centered.square().mean() * (affine - mean)
        expected = {
            "tokens": len(scores),
            "score_variance": scores.var(correction=0),
            "collision": weights.square().sum(),
            "entropy": -(weights * weights.log()).sum(),
            "largest_weight": weights.max(),
            "output": output.square().sum(),
            "mean_error": (output - mean).square().sum(),
            "affine_error": (output - affine).square().sum(),
            "third_error": (output - affine - third / 2).square().sum(),
            "fourth_error": (output - affine - third / 2 - fourth / 6).square().sum(),
            "value_spread": (value - mean).square().sum(-1).mean(),
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
    for name in ("affine_error", "third_error", "collision"):
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


@pytest.mark.parametrize("name", ["mixture_4_error", "affine_error", "entropy"])
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


def test_one_token_has_no_spread_in_single_precision(random_heads):
    """The first causal query reads one key: what cancels there is as small as double precision
    makes it.
    """
    heads = random_heads(causal=True)
    single = dataclasses.replace(
        heads, **{name: getattr(heads, name).float() for name in ("query", "key", "value")}
    )
    found = head_statistics(single, torch.arange(50))
    assert float((found["value_spread"][..., 0] / found["output"][..., 0]).max()) < 1e-14
