"""The tail index of the largest weights, against SciPy's generalized Pareto law."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import genpareto
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.measures.numerics.pareto import pareto_tail_index, tail_count

F = torch.float64


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F)


def log_weights(exceedances):
    """Logarithms of weights 1 + y over the cutoff 1, which is the last of them."""
    return torch.log1p(
        torch.cat([exceedances, exceedances.new_zeros(*exceedances.shape[:-1], 1)], -1)
    )


def naive(exceedances):
    """Zhang & Stephens' estimator and the weak prior, one sample at a time, written out on the
    exceedances themselves.
    """
    y = np.sort(np.asarray(exceedances))
    n = len(y)
    points = 30 + math.floor(math.sqrt(n))
    theta = [
        1 / y[-1] + (1 - math.sqrt(points / (j - 0.5))) / (3 * y[math.floor(n / 4 + 0.5) - 1])
        for j in range(1, points + 1)
    ]
    likelihood = []
    for b in theta:
        k = np.mean(np.log1p(-b * y))
        likelihood.append(n * (math.log(-b / k) - k - 1))
    weights = np.exp(np.array(likelihood) - max(likelihood))
    best = np.sum(weights * theta) / np.sum(weights)
    return (n * np.mean(np.log1p(-best * y)) + 5) / (n + 10)


@pytest.mark.parametrize("shape", [-0.3, 0.2, 0.7, 1.2])
def test_known_shapes(shape):
    """20 samples of 2000 exceedances; in six standard errors, (1 + k)/√n each (false alarm below
    1e-7), prior undone.
    """
    n, scale = 2000, 3.0
    samples = torch.as_tensor(
        genpareto.rvs(shape, scale=scale, size=(20, n), random_state=np.random.default_rng(0))
    )
    estimates = (pareto_tail_index(log_weights(samples)) * (n + 10) - 5) / n
    error = (1 + shape) / math.sqrt(n)
    assert bool(((estimates - shape).abs() < 6 * error).all())
    # its bias is of order 1/n
    assert abs(float(estimates.mean()) - shape) < 6 * error / math.sqrt(20) + 2 / n


@pytest.mark.parametrize("shape", [-0.3, 0.2, 0.7, 1.2])
@pytest.mark.parametrize(("n", "difference"), [(200, 0.06), (5000, 0.003)])
def test_agrees_with_maximum_likelihood(shape, n, difference):
    """The two estimators differ by a term of order 1/n, far below the standard error of either."""
    sample = genpareto.rvs(shape, scale=0.5, size=n, random_state=np.random.default_rng(1))
    fitted, _, _ = genpareto.fit(sample, floc=0)
    estimate = (float(pareto_tail_index(log_weights(torch.as_tensor(sample)))) * (n + 10) - 5) / n
    assert abs(estimate - fitted) < difference


@pytest.mark.parametrize("n", [5, 6, 9, 30, 301])
def test_equals_the_formula_written_out(n):
    for seed, spread in enumerate([0.01, 0.5, 1.0, 4.0]):
        y = torch.exp(spread * draw(3, n, seed=seed))
        expected = torch.tensor([naive(row) for row in y], dtype=F)
        assert_close(pareto_tail_index(log_weights(y)), expected, rtol=1e-8, atol=1e-8)


def test_order_shift_and_batch_do_not_matter():
    scores = 1.5 * draw(3, 4, 60)
    index = pareto_tail_index(scores)
    assert index.shape == (3, 4)
    assert_close(pareto_tail_index(scores.flip(-1) + 100), index, rtol=1e-10, atol=1e-10)
    assert_close(pareto_tail_index(scores[1, 2]), index[1, 2], rtol=1e-14, atol=0)
    assert pareto_tail_index(scores[:0]).shape == (0, 4)
    assert_close(pareto_tail_index(scores.float()), index, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [1e4, 1e8, 1e150])
def test_scores_of_any_size(size):
    """Where the exceedances are e^{size ...}, log(1 + b y) is a multiple of size, and so is the
    index.
    """
    scores = draw(5, 100)
    index, larger = pareto_tail_index(size * scores), pareto_tail_index(2 * size * scores)
    assert bool(torch.isfinite(index).all())
    assert bool((index > 0.1 * size).all())
    assert_close(larger / index, torch.full((5,), 2.0, dtype=F), rtol=1e-2, atol=0)


def test_too_few_tokens_and_no_tail_are_said():
    assert pareto_tail_index(draw(3, 5)).tolist() == [math.inf] * 3  # four exceedances
    assert torch.isfinite(pareto_tail_index(draw(3, 6))).all()
    assert float(pareto_tail_index(torch.zeros(1))) == math.inf
    assert pareto_tail_index(torch.full((2, 6), 7.0)).tolist() == [-math.inf] * 2
    rounded = 7 * (1 + 2e-16 * torch.arange(9, dtype=F))
    assert float(pareto_tail_index(rounded)) == -math.inf  # equal up to rounding
    few_stand_out = torch.tensor([3.0, 3.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    assert float(pareto_tail_index(few_stand_out)) == math.inf
    mixed = torch.stack([torch.zeros(8), few_stand_out, torch.arange(8.0)])
    index = pareto_tail_index(mixed).tolist()
    assert index[:2] == [-math.inf, math.inf]
    assert math.isfinite(index[2])


def test_ties_with_the_cutoff_are_left_out():
    y = torch.exp(draw(40))
    tied = torch.cat([log_weights(y), torch.zeros(3, dtype=F)])
    # the grid has a point for each unit of √M, and M counts the ties: the estimate moves a little
    assert_close(pareto_tail_index(tied), pareto_tail_index(log_weights(y)), rtol=0, atol=1e-3)


def test_no_exponential_limit_is_missed():
    """b = 0 exactly on a grid point: k(b)/b is 0/0 there, and its limit, the mean of y, is used."""
    n = 20
    points = 30 + math.isqrt(n)
    # the tenth grid point, which is zero when y_quartile = c y_max
    c = (math.sqrt(points / 9.5) - 1) / 3
    y = torch.linspace(0.01, 1, n, dtype=F)
    y[4] = c  # position 5 of 20 in ascending order is the lower quartile
    y = torch.cat(
        [y[:4] * c / y[3] * 0.9, y[4:5], c + (1 - c) * torch.linspace(0.05, 1, n - 5, dtype=F)]
    )
    index = float(pareto_tail_index(log_weights(y)))
    y[4] *= 1 + 1e-4
    assert index == pytest.approx(float(pareto_tail_index(log_weights(y))), abs=1e-3)


@pytest.mark.parametrize(
    ("length", "count"),
    [(1, 1), (20, 4), (21, 5), (35, 7), (225, 45), (226, 46), (10_000, 300), (10**12, 3 * 10**6)],
)
def test_tail_count(length, count):
    assert tail_count(length) == count


@pytest.mark.parametrize(
    "bad",
    [
        torch.tensor([1.0, math.nan]),
        torch.zeros(3, 0),
        torch.tensor(1.0),
        "weights",
        torch.ones(3) * 1j,
    ],
)
def test_bad_log_weights(bad):
    with pytest.raises(lp.InvalidArgumentError, match="log_weights: got"):
        pareto_tail_index(bad)
