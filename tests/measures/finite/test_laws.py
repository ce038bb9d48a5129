"""Prompts and discrete laws: order, shards, weights and merging."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.testing.strategies import vectors

F = torch.float64
EVEN = settings(deadline=None, max_examples=60, derandomize=True)


def close(a, b):
    assert_close(a, b, rtol=1e-9, atol=1e-9)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F)


@EVEN
@given(st.data(), st.integers(1, 4), st.integers(2, 12))
def test_prompts_do_not_care_about_order_or_shards(data, d, length):
    tokens = data.draw(vectors(d, shape=(length,), size=5.0))
    u = data.draw(vectors(d, shape=(3,), size=5.0))
    cut = data.draw(st.integers(1, length - 1))
    order = torch.tensor(data.draw(st.permutations(range(length))))
    whole, shuffled = lp.Empirical(tokens), lp.Empirical(tokens[order])
    left, right = lp.Empirical(tokens[:cut]), lp.Empirical(tokens[cut:])
    state = left.running(u, covariance=True).merge(right.running(u, covariance=True))
    backwards = right.running(u, covariance=True).merge(left.running(u, covariance=True))
    for other in (shuffled, left.merge(right), right.merge(left)):
        close(other.cgf(u), whole.cgf(u))
        close(other.tilted_mean(u), whole.tilted_mean(u))
        close(other.tilted_covariance(u), whole.tilted_covariance(u))
    for merged in (state, backwards):
        close(merged.cgf, whole.cgf(u))
        close(merged.mean, whole.tilted_mean(u))
        close(merged.covariance, whole.tilted_covariance(u))


@EVEN
@given(st.data(), st.integers(1, 3), st.integers(1, 6))
def test_weights_are_repetitions(data, d, count):
    """A token of weight n/N is the same token n times among N."""
    tokens = data.draw(vectors(d, shape=(count,)))
    repeats = torch.tensor(
        data.draw(st.lists(st.integers(0, 4), min_size=count, max_size=count).filter(any))
    )
    u = data.draw(vectors(d))
    weighted = lp.Empirical(tokens, repeats.to(F) / repeats.sum())
    repeated = lp.Empirical(tokens.repeat_interleave(repeats, 0))
    discrete = lp.Discrete(tokens, repeats.to(F) / repeats.sum())
    for other in (weighted, discrete):
        close(other.cgf(u), repeated.cgf(u))
        close(other.tilted_mean(u), repeated.tilted_mean(u))
        close(other.tilted_covariance(u), repeated.tilted_covariance(u))
        close(other.norm_moment4(u), repeated.norm_moment4(u))


def test_fused_kernel_and_stream_agree():
    tokens, u = draw(5000, 16), draw(33, 16, seed=1)
    mu = lp.Empirical(tokens)
    assert_close(mu.tilted_mean(u), mu.running(u).mean, rtol=1e-11, atol=1e-12)
    single = mu.to(dtype=torch.float32)
    assert_close(single.tilted_mean(u.float()).double(), mu.tilted_mean(u), rtol=1e-3, atol=1e-3)


def test_merge_of_weighted_parts_counts_tokens():
    left, right = lp.Empirical([[0.0], [1.0]], [0.25, 0.75]), lp.Empirical([[2.0], [3.0], [4.0]])
    merged = left.merge(right)
    assert_close(merged.weights, torch.tensor([0.1, 0.3, 0.2, 0.2, 0.2], dtype=F))
    state = left.running([1.0]).merge(right.running([1.0]))
    assert_close(state.mean, merged.tilted_mean([1.0]))
    assert_close(state.cgf, merged.cgf([1.0]))
    assert merged.length == 5
