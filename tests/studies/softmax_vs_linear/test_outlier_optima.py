"""Marked outliers in isotropic form: the optimum of each attention, and the line on which they
meet.
"""

import dataclasses
import math

import pytest
import torch
from outlier_examples import general_outliers, isotropic_outliers
from scipy.stats import binom
from training_examples import draw

import largeprompt as lp
from largeprompt.studies.softmax_vs_linear.outliers import MarkedOutliers
from largeprompt.training import SobolAverage

F = torch.float64
KINDS = (lp.SoftmaxAttention, lp.LinearAttention)


def test_isotropic_form_is_the_general_one():
    task = isotropic_outliers(2, sigma=1.3)
    for mark, length in ((0.0, 1), (1.5, 4), (0.7, 300), (1.5, math.inf)):
        estimate = task.risk_estimate(
            task.layer(lp.SoftmaxAttention, 0.6, mark, 1.1), length, average=SobolAverage(256)
        )
        exact = float(task.isotropic_risk(0.6, mark, 1.1, length))
        assert abs(exact - estimate.value) < 6 * estimate.standard_error + 1e-6


def test_isotropic_form_without_outliers():
    task = isotropic_outliers(6, p=0.0)
    for length in (2, 50, 10**6):
        for mark in (0.0, 3.0, math.inf):
            expected = task.regression.isotropic_risk(
                torch.tensor([0.5], dtype=F), torch.tensor([1.4], dtype=F), length
            )
            assert float(task.isotropic_risk(0.5, mark, 1.4, length)) == pytest.approx(
                float(expected), rel=3e-7
            )


def test_silence_is_regression_on_a_binomial_number_of_tokens():
    task, a, b, length = isotropic_outliers(6, p=0.4), 0.5, 1.2, 5
    clean = dataclasses.replace(task, probability=0.0)
    # a prompt of outliers alone: s² + E t² + b² τ² E Y, the weights those of L tokens
    signal = 1.0
    silent = [float(dataclasses.replace(clean, variance=0.0).isotropic_risk(a, 0.0, 0.0, 1))]
    assert 2 * silent[0] == pytest.approx(0.2 + signal, rel=1e-12)
    y = 2 * float(_only_noise(task).isotropic_risk(a, 0.0, b, length)) - signal
    expected = 0.4**length * (0.2 + signal + y) / 2
    for k in range(1, length + 1):
        expected += binom.pmf(k, length, 0.6) * float(clean.isotropic_risk(a, 0.0, b, k))
    assert float(task.isotropic_risk(a, math.inf, b, length)) == pytest.approx(expected, rel=1e-12)
    assert float(task.isotropic_risk(a, 50.0, b, length)) == pytest.approx(expected, rel=1e-10)


def _only_noise(task):
    """Every token an outlier: p next to 1, the rest of the law as it is, no noise in the answer."""
    base = task.regression
    clean = lp.LinearRegression(base.covariance, base.prior_covariance, 0.0)
    return MarkedOutliers(clean, 1 - 1e-16, task.variance)


def test_isotropic_risk_is_differentiable():
    task = isotropic_outliers(2)
    point = torch.tensor([0.4, 0.9], dtype=F, requires_grad=True)
    (slope,) = torch.autograd.grad(task.isotropic_risk(point[0], 1.0, point[1], 6), point)
    for i, way in enumerate(torch.eye(2, dtype=F)):
        moved = [point.detach() + step * way for step in (-1e-5, 1e-5)]
        ends = [float(task.isotropic_risk(a, 1.0, b, 6)) for a, b in moved]
        assert (ends[1] - ends[0]) / 2e-5 == pytest.approx(float(slope[i]), rel=1e-6)


def test_best_linear_attention_ignores_the_mark():
    """The closed form is the risk at its layer; the gradient vanishes in every entry of U and V; 40
    layers around it are worse.
    """
    task = isotropic_outliers(2, p=0.3)
    for length in (3, 100):
        best = task.isotropic_optimum(length, lp.LinearAttention)
        layer = task.layer(lp.LinearAttention, best.a, best.mark, best.read_out)
        assert float(task.risk(layer, length)) == pytest.approx(best.risk, rel=1e-12)
        U, V = layer.U.clone().requires_grad_(), layer.V.clone().requires_grad_()
        slopes = torch.autograd.grad(task.risk(lp.LinearAttention(U, V), length), (U, V))
        assert max(float(slope.abs().max()) for slope in slopes) < 1e-12
        nearby = lp.LinearAttention(
            layer.U + 0.3 * draw(40, 4, 4, seed=3), layer.V + 0.3 * draw(40, 1, 4, seed=4)
        )
        assert bool((task.risk(nearby, length) > best.risk).all())


@pytest.mark.parametrize(("length", "mark"), [(6, math.inf), (100, 0.0), (10**8, 1.0)])
def test_best_softmax_is_a_minimum(length, mark):
    task = isotropic_outliers(6, p=0.2, variance=9.0)
    best = task.isotropic_optimum(length, mark=mark)
    a, b = (
        torch.tensor(best.a, dtype=F, requires_grad=True),
        torch.tensor(best.read_out, dtype=F, requires_grad=True),
    )
    value = task.isotropic_risk(a, mark, b, length)
    slopes = torch.autograd.grad(value, (a, b))
    excess = 2 * best.risk - 0.2
    assert max(abs(float(slope)) for slope in slopes) < 1e-4 * excess
    factors = torch.tensor([0.8, 0.95, 1.05, 1.2], dtype=F)
    assert bool(
        (
            task.isotropic_risk(best.a * factors, mark, best.read_out / factors, length) > best.risk
        ).all()
    )
    assert bool(
        (task.isotropic_risk(best.a, mark, best.read_out * factors, length) > best.risk).all()
    )


def test_best_without_outliers_is_that_of_regression():
    task = isotropic_outliers(6, p=0.0)
    for length in (40, 10**5):
        found, expected = (
            task.isotropic_optimum(length, mark=None),
            lp.training.isotropic_optimum(task.regression, length),
        )
        assert found.risk == pytest.approx(expected.risk, rel=1e-7)
        assert found.a == pytest.approx(expected.a, rel=1e-3)
        linear = task.isotropic_optimum(length, lp.LinearAttention)
        assert linear.risk == pytest.approx(
            lp.training.isotropic_optimum(task.regression, length, lp.LinearAttention).risk,
            rel=1e-9,
        )


def test_searching_the_mark_finds_better_than_silence():
    """A handful of tokens may keep a little of the outliers, which serve as a sink for the weights;
    long prompts silence them.
    """
    long = isotropic_outliers(6, p=0.2, variance=4.0)
    risks = [long.isotropic_optimum(400, mark=mark).risk for mark in (math.inf, 6.0)]
    assert risks[0] < risks[1]
    short = isotropic_outliers(8, noise=0.0, p=0.6, variance=0.5)
    free, silent = (short.isotropic_optimum(4, mark=mark) for mark in (None, math.inf))
    assert free.risk < silent.risk
    assert math.isfinite(free.mark)


@pytest.mark.parametrize("mark", [math.inf, 1.0, 0.0, -0.5])
def test_long_prompts_have_the_first_order_constant(mark):
    task = isotropic_outliers(4, noise=0.3, p=0.3, variance=6.0, sigma=1.5)
    length = 10**9
    excess = 2 * task.isotropic_optimum(length, mark=mark).risk - 0.3  # E(w·x_q)² = 1.5
    assert length * excess / 1.5 == pytest.approx(task.softmax_constant(mark=mark), rel=1e-5)
    linear = 2 * task.isotropic_optimum(length, lp.LinearAttention).risk - 0.3
    assert length * linear / 1.5 == pytest.approx(task.linear_constant(), rel=1e-6)


def test_known_constants():
    """3.19 times linear attention at d = 5 without outliers (formulas risk.11 and sel.7), and
    silence leaves L(1 - p) tokens.
    """
    task = isotropic_outliers(5, noise=0.0, p=0.0)
    assert task.linear_constant() == pytest.approx(6.0)
    assert task.softmax_constant() / task.linear_constant() == pytest.approx(3.19, abs=0.005)
    assert isotropic_outliers(5, noise=0.0, p=0.4).softmax_constant() == pytest.approx(
        task.softmax_constant() / 0.6, rel=1e-12
    )
    constants = [
        isotropic_outliers(6).softmax_constant(mark=mark)
        for mark in (math.inf, 6.0, 2.0, 0.0, -1.0)
    ]
    assert constants == sorted(constants)


def test_the_crossing_line():
    task = isotropic_outliers(6, noise=0.1, p=0.2)
    # few good tokens, many dimensions: prompts of outliers alone count
    wide = isotropic_outliers(10, noise=0.1, p=0.5)
    predicted = task.crossing_variance()
    found = [task.crossing_variance(length) for length in (50, 10**4, 10**8)]
    gaps = [abs(one / predicted - 1) for one in found]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 1e-5
    for length, variance in ((50, found[0]), (5, wide.crossing_variance(5))):
        for factor, softmax_wins in ((0.9, False), (1.1, True)):
            case = dataclasses.replace(task if length == 50 else wide, variance=factor * variance)
            best = [case.isotropic_optimum(length, kind).risk for kind in KINDS]
            assert (best[0] < best[1]) == softmax_wins
        at = dataclasses.replace(task if length == 50 else wide, variance=variance)
        risks = [at.isotropic_optimum(length, kind).risk for kind in KINDS]
        assert risks[0] == pytest.approx(risks[1], rel=1e-7)
    assert isotropic_outliers(6, p=0.0).crossing_variance() == math.inf
    assert isotropic_outliers(6, p=0.0).crossing_variance(100) == math.inf


def test_without_the_mark_there_is_no_crossing():
    """Linear attention stays ahead by a factor that tends to ((d + 2)/d)^{d/2 + 1} as the outliers
    grow.
    """
    for d in (1, 5):
        for p in (0.1, 0.7):
            for variance in (0.0, 1.0, 100.0, 1e8):
                task = isotropic_outliers(d, p=p, variance=variance)
                assert task.softmax_constant(mark=0.0) > task.linear_constant()
        assert task.softmax_constant(mark=0.0) / task.linear_constant() == pytest.approx(
            ((d + 2) / d) ** (d / 2 + 1), rel=1e-4
        )
    for variance in (0.0, 50.0):
        task = isotropic_outliers(6, p=0.3, variance=variance)
        for length in (40, 1000):
            assert (
                task.isotropic_optimum(length, mark=0.0).risk
                > task.isotropic_optimum(length, lp.LinearAttention).risk
            )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: general_outliers().isotropic_optimum(10), "multiples of the identity"),
        (lambda: isotropic_outliers().isotropic_optimum(math.inf), "length"),
        (lambda: isotropic_outliers().isotropic_optimum(10, mark=math.nan), "mark: got nan"),
        (lambda: isotropic_outliers().isotropic_risk(0.5, -math.inf, 1.0, 10), "mark: got -inf"),
        (lambda: isotropic_outliers().softmax_constant(mark=math.nan), "mark: got nan"),
        (lambda: isotropic_outliers().crossing_variance(0), "length: got 0"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(lp.InvalidArgumentError, match=words):
        call()
