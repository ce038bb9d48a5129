"""One informative token, marked outliers, and prompts with a mean of their own: against draws."""

import math

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom

from largeprompt.studies.softmax_vs_linear.lattice import Lattice
from largeprompt.studies.softmax_vs_linear.location import annealed_weight, missed_weight
from largeprompt.studies.softmax_vs_linear.outliers import (
    crossing_variance,
    good_tokens,
    linear_constant,
    long_prompt_crossing,
    silenced,
    unmarked_excess,
)
from largeprompt.studies.softmax_vs_linear.shifted import crossing_length, shifted_linear_excess


def close(values, expected):
    """Whether a sampled mean is within five standard errors."""
    return abs(values.mean() - expected) < 5 * values.std() / math.sqrt(values.size)


def test_the_weight_that_misses_the_informative_token():
    nodes, weights = np.polynomial.hermite_e.hermegauss(150)
    for nu in (0.5, 4.0):  # two tokens: the scores differ by N(ν, 2ν)
        expected = weights @ expit(-nu - math.sqrt(2 * nu) * nodes) / weights.sum()
        assert missed_weight(2, [nu])[0] == pytest.approx(expected, rel=1e-9)
    random, nu, length = np.random.default_rng(0), 6.0, 40
    scores = math.sqrt(nu) * random.standard_normal((40_000, length))
    scores[:, 0] += nu
    w = np.exp(scores - scores.max(1, keepdims=True))
    found = w[:, 0] / w.sum(1)
    assert close(1 - found, missed_weight(length, [nu])[0])
    # the posterior of the location: E w_ε = E Σ w²
    assert close((w**2).sum(1) / w.sum(1) ** 2, 1 - missed_weight(length, [nu])[0])


def test_the_annealed_weight_is_a_lower_bound_with_the_predicted_threshold():
    for length in (10, 10**6):
        nu = np.array([0.0, 1.0, 8.0, 40.0])
        annealed = np.array([annealed_weight(length, each) for each in nu])
        assert np.all(annealed <= 1 - missed_weight(length, nu) + 1e-12)
    assert missed_weight(10**15, [2 * math.log(1e15)])[0] == pytest.approx(0.5, abs=0.1)


def test_binomial_numbers_by_five_of_them():
    counts, weights = good_tokens(1000, 0.3)
    law = binom(1000, 0.7)
    for function in (lambda n: 1 / n, lambda n: n**3.0, np.sqrt):
        every = np.arange(1, 1001)
        expected = law.pmf(every) @ function(every)
        assert weights @ function(counts) == pytest.approx(expected, rel=1e-8)
    few, shares = good_tokens(30, 0.4)
    np.testing.assert_allclose(shares, binom(30, 0.6).pmf(few), rtol=1e-9)


def drawn(d, share, length, tilt, variance, silent, count=20_000):
    """Read-out and target over drawn prompts with outliers, without noise."""
    random = np.random.default_rng(1)
    x, query = random.standard_normal((count, length, d)), random.standard_normal((count, d))
    w = random.standard_normal((count, d)) / math.sqrt(d)
    bad = random.random((count, length)) < share
    y = np.where(
        bad,
        math.sqrt(variance) * random.standard_normal((count, length)),
        np.einsum("nld,nd->nl", x, w),
    )
    scores = tilt * np.einsum("nld,nd->nl", x, query) - np.where(bad & silent, 80.0, 0.0)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return (weights * y).sum(1) / weights.sum(1), (w * query).sum(1), query


def test_outliers_silenced_and_not_over_drawn_prompts():
    d, share, length, tilt = 2, 0.3, 40, 0.6
    total, mixed, square = silenced(length, share).moments(d, 0.0, tilt)
    read, target, _ = drawn(d, share, length, tilt, 5.0, True)
    b = mixed / square
    assert close((b * read - target) ** 2, total - mixed**2 / square)
    # without a mark: no read-out of drawn prompts has a lower risk than the least
    read, target, _ = drawn(d, share, length, tilt, 5.0, False)
    gain = (read * target).mean() ** 2 / (read**2).mean()
    assert unmarked_excess(d, share, length, 5.0) <= 1 - gain + 0.02
    none = unmarked_excess(d, 1e-12, length, 5.0)
    assert none == pytest.approx(Lattice.of(length, 12.0).least_excess(d, 0.0), rel=1e-8)


def test_crossings_tend_to_those_of_long_prompts():
    off = [
        abs(crossing_variance(2, 0.2, length) / long_prompt_crossing(2, 0.2) - 1)
        for length in (100, 10_000)
    ]
    assert off[1] < 0.1 * off[0] < 0.1
    assert linear_constant(3, 0.2, 0.0) == pytest.approx(5 / 0.8 - 1)
    assert long_prompt_crossing(5, 0.2) == pytest.approx(10.4, abs=0.05)


def test_linear_attention_on_prompts_with_their_own_mean():
    d, tau, length, count = 2, 0.5, 6, 100_000
    random = np.random.default_rng(2)
    m = math.sqrt(tau) * random.standard_normal((count, d))
    x = m[:, None] + random.standard_normal((count, length, d))
    query = m + random.standard_normal((count, d))
    w = random.standard_normal((count, d)) / math.sqrt(d)
    y = np.einsum("nld,nd->nl", x, w)
    read = np.einsum("nld,nd,nl->n", x, query, y) / length
    target = (w * query).sum(1)
    b = (read * target).mean() / (read**2).mean()
    expected = shifted_linear_excess(d, tau, length) * (1 + tau)
    assert close((b * read - target) ** 2, expected)
    assert crossing_length(2, 1.0) == pytest.approx(4.17, abs=0.01)
    assert 2 * shifted_linear_excess(2, 1.0) / 2 == pytest.approx(0.3875, abs=1e-4)
