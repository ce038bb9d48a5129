"""Regression with marked outliers: exact risks, the optimum of each attention, and the line on which they meet."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.law.token_kinds import softmax_error
from largeprompt.training import SobolAverage
from largeprompt.training.risk.average import quadratic_points, quartic_points
from largeprompt.training.tasks.outliers import good_tokens

F = torch.float64
KINDS = (lp.SoftmaxAttention, lp.LinearAttention)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F)


def isotropic(d=6, noise=0.2, p=0.25, variance=4.0, sigma=1.0):
    eye = torch.eye(d, dtype=F)
    return lp.training.MarkedOutliers(lp.LinearRegression(sigma * eye, eye / d, noise), p, variance)


def general():
    covariance = torch.tensor([[1.0, 0.3], [0.3, 0.6]], dtype=F)
    return lp.training.MarkedOutliers(
        lp.LinearRegression(covariance, torch.eye(2, dtype=F) / 2, 0.2, 0.7 * torch.eye(2, dtype=F)), 0.3, 5.0
    )


@pytest.mark.parametrize("length", [1, 2, 15])
def test_general_layers_against_drawn_prompts(length):
    """Any U and V in R^4, two of them: 12 comparisons within 6.5 standard errors (false alarms 1e-9 in all)."""
    task, n = general(), max(6000, 30_000 // length)
    tokens, query, answer = task.sample(n, length, torch.Generator().manual_seed(length))
    for seed in range(2):
        U, V = draw(4, 4, seed=seed) / 2, draw(1, 4, seed=seed + 10)
        for kind in (lp.SoftmaxAttention, lp.LinearAttention):
            loss = (kind(U, V)(lp.Empirical(tokens), query) - answer).square().sum(-1) / 2
            exact = task.risk_estimate(kind(U, V), length, average=SobolAverage(128))
            error = math.hypot(float(loss.std()) / math.sqrt(n), exact.standard_error)
            assert abs(float(loss.mean()) - exact.value) < 6.5 * error


def test_drawn_tokens_are_those_of_the_task():
    task = general()
    tokens, query, _ = task.sample(50, 2000, torch.Generator().manual_seed(0))
    mark = tokens[..., 3]
    assert set(mark.unique().tolist()) == {0.0, 1.0}
    assert abs(float(mark.mean()) - 0.3) < 6 * math.sqrt(0.21 / 100_000)
    wild = tokens[mark == 1][:, 2]
    assert abs(float(wild.square().mean()) - 5.0) < 6 * 5 * math.sqrt(2 / len(wild))
    assert bool((query[:, 2:] == torch.tensor([0.0, 1.0], dtype=F)).all())


def test_without_outliers_it_is_linear_regression():
    """Context by context to 1e-12, in the formula of the Gaussian law; and any mark leaves the risk as it is."""
    task = dataclasses.replace(general(), probability=0.0)
    U, V = torch.zeros(4, 4, dtype=F), torch.zeros(1, 4, dtype=F)
    U[:3, :2], V[0, :3] = draw(3, 2, seed=1), draw(3, seed=2)
    w, x = draw(8, 2, seed=3), draw(8, 2, seed=4)
    base = task.regression
    gamma, z = base.token_law(w).covariance, torch.nn.functional.pad(x, (0, 1))
    u = z @ U[:3, :3].mT
    q, a = torch.einsum("ni,nij,nj->n", u, gamma, u), torch.einsum("i,nij,nj->n", V[0, :3], gamma, u)
    spread, t = torch.einsum("i,nij,j->n", V[0, :3], gamma, V[0, :3]), (w * x).sum(-1)
    for length in (1, 2, 40, 10**9):
        f, w3, y2 = lp.law.weight_moments(length, q.sqrt(), [[(2, 0)], [(3, 0)], [(2, 0)] * 2])
        expected = (a - t) ** 2 + f * (spread - a**2 + 2 * a * t) - 6 * (w3 - y2) * a**2
        assert_close(softmax_error(float(length), task.kinds(U, V, w, x)), expected, rtol=1e-12, atol=1e-13)
    plain = lp.SoftmaxAttention(U[:3, :3], V[:, :3])
    U[3, 3] = 7.0  # scores of a mark that no token carries
    linear = lp.LinearAttention(U, V)
    assert float(task.risk(linear, 9)) == pytest.approx(float(base.risk(lp.LinearAttention(plain.U, plain.V), 9)), rel=1e-12)
    found, expected = (
        task.risk_estimate(lp.SoftmaxAttention(U, V), 9, average=SobolAverage(512)),
        base.risk_estimate(plain, 9, average=SobolAverage(512)),
    )
    assert abs(found.value - expected.value) < 6 * math.hypot(found.standard_error, expected.standard_error)


def test_isotropic_form_is_the_general_one():
    task = isotropic(2, sigma=1.3)
    for mark, length in ((0.0, 1), (1.5, 4), (0.7, 300), (1.5, math.inf)):
        estimate = task.risk_estimate(task.layer(lp.SoftmaxAttention, 0.6, mark, 1.1), length, average=SobolAverage(256))
        exact = float(task.isotropic_risk(0.6, mark, 1.1, length))
        assert abs(exact - estimate.value) < 6 * estimate.standard_error + 1e-6


def test_isotropic_form_without_outliers():
    task = isotropic(6, p=0.0)
    for length in (2, 50, 10**6):
        for mark in (0.0, 3.0, math.inf):
            expected = task.regression.isotropic_risk(torch.tensor([0.5], dtype=F), torch.tensor([1.4], dtype=F), length)
            assert float(task.isotropic_risk(0.5, mark, 1.4, length)) == pytest.approx(float(expected), rel=3e-7)


def test_silence_is_regression_on_a_binomial_number_of_tokens():
    task, a, b, length = isotropic(6, p=0.4), 0.5, 1.2, 5
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
    return lp.training.MarkedOutliers(clean, 1 - 1e-16, task.variance)


def test_isotropic_risk_is_differentiable():
    task = isotropic(2)
    point = torch.tensor([0.4, 0.9], dtype=F, requires_grad=True)
    (slope,) = torch.autograd.grad(task.isotropic_risk(point[0], 1.0, point[1], 6), point)
    for i, way in enumerate(torch.eye(2, dtype=F)):
        moved = [point.detach() + step * way for step in (-1e-5, 1e-5)]
        ends = [float(task.isotropic_risk(a, 1.0, b, 6)) for a, b in moved]
        assert (ends[1] - ends[0]) / 2e-5 == pytest.approx(float(slope[i]), rel=1e-6)


def test_best_linear_attention_ignores_the_mark():
    """The closed form is the risk at its layer; the gradient vanishes in every entry of U and V; 40 layers around it are worse."""
    task = isotropic(2, p=0.3)
    for length in (3, 100):
        best = task.isotropic_optimum(length, lp.LinearAttention)
        layer = task.layer(lp.LinearAttention, best.a, best.mark, best.read_out)
        assert float(task.risk(layer, length)) == pytest.approx(best.risk, rel=1e-12)
        U, V = layer.U.clone().requires_grad_(), layer.V.clone().requires_grad_()
        slopes = torch.autograd.grad(task.risk(lp.LinearAttention(U, V), length), (U, V))
        assert max(float(slope.abs().max()) for slope in slopes) < 1e-12
        nearby = lp.LinearAttention(layer.U + 0.3 * draw(40, 4, 4, seed=3), layer.V + 0.3 * draw(40, 1, 4, seed=4))
        assert bool((task.risk(nearby, length) > best.risk).all())


@pytest.mark.parametrize(("length", "mark"), [(6, math.inf), (100, 0.0), (10**8, 1.0)])
def test_best_softmax_is_a_minimum(length, mark):
    task = isotropic(6, p=0.2, variance=9.0)
    best = task.isotropic_optimum(length, mark=mark)
    a, b = torch.tensor(best.a, dtype=F, requires_grad=True), torch.tensor(best.read_out, dtype=F, requires_grad=True)
    value = task.isotropic_risk(a, mark, b, length)
    slopes = torch.autograd.grad(value, (a, b))
    excess = 2 * best.risk - 0.2
    assert max(abs(float(slope)) for slope in slopes) < 1e-4 * excess
    factors = torch.tensor([0.8, 0.95, 1.05, 1.2], dtype=F)
    assert bool((task.isotropic_risk(best.a * factors, mark, best.read_out / factors, length) > best.risk).all())
    assert bool((task.isotropic_risk(best.a, mark, best.read_out * factors, length) > best.risk).all())


def test_best_without_outliers_is_that_of_regression():
    task = isotropic(6, p=0.0)
    for length in (40, 10**5):
        found, expected = (task.isotropic_optimum(length, mark=None), lp.training.isotropic_optimum(task.regression, length))
        assert found.risk == pytest.approx(expected.risk, rel=1e-7)
        assert found.a == pytest.approx(expected.a, rel=1e-3)
        linear = task.isotropic_optimum(length, lp.LinearAttention)
        assert linear.risk == pytest.approx(
            lp.training.isotropic_optimum(task.regression, length, lp.LinearAttention).risk, rel=1e-9
        )


def test_searching_the_mark_finds_better_than_silence():
    """A handful of tokens may keep a little of the outliers, which serve as a sink for the weights; long prompts silence them."""
    long = isotropic(6, p=0.2, variance=4.0)
    risks = [long.isotropic_optimum(400, mark=mark).risk for mark in (math.inf, 6.0)]
    assert risks[0] < risks[1]
    short = isotropic(8, noise=0.0, p=0.6, variance=0.5)
    free, silent = (short.isotropic_optimum(4, mark=mark) for mark in (None, math.inf))
    assert free.risk < silent.risk
    assert math.isfinite(free.mark)


@pytest.mark.parametrize("mark", [math.inf, 1.0, 0.0, -0.5])
def test_long_prompts_have_the_first_order_constant(mark):
    task = isotropic(4, noise=0.3, p=0.3, variance=6.0, sigma=1.5)
    length = 10**9
    excess = 2 * task.isotropic_optimum(length, mark=mark).risk - 0.3  # E(w·x_q)² = 1.5
    assert length * excess / 1.5 == pytest.approx(task.softmax_constant(mark=mark), rel=1e-5)
    linear = 2 * task.isotropic_optimum(length, lp.LinearAttention).risk - 0.3
    assert length * linear / 1.5 == pytest.approx(task.linear_constant(), rel=1e-6)


def test_known_constants():
    """3.19 times linear attention at d = 5 without outliers (formulas risk.11 and sel.7), and silence leaves L(1 - p) tokens."""
    task = isotropic(5, noise=0.0, p=0.0)
    assert task.linear_constant() == pytest.approx(6.0)
    assert task.softmax_constant() / task.linear_constant() == pytest.approx(3.19, abs=0.005)
    assert isotropic(5, noise=0.0, p=0.4).softmax_constant() == pytest.approx(task.softmax_constant() / 0.6, rel=1e-12)
    constants = [isotropic(6).softmax_constant(mark=mark) for mark in (math.inf, 6.0, 2.0, 0.0, -1.0)]
    assert constants == sorted(constants)


def test_the_crossing_line():
    task = isotropic(6, noise=0.1, p=0.2)
    wide = isotropic(10, noise=0.1, p=0.5)  # few good tokens, many dimensions: prompts of outliers alone count
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
    assert isotropic(6, p=0.0).crossing_variance() == math.inf
    assert isotropic(6, p=0.0).crossing_variance(100) == math.inf


def test_without_the_mark_there_is_no_crossing():
    """Linear attention stays ahead by a factor that tends to ((d + 2)/d)^{d/2 + 1} as the outliers grow."""
    for d in (1, 5):
        for p in (0.1, 0.7):
            for variance in (0.0, 1.0, 100.0, 1e8):
                task = isotropic(d, p=p, variance=variance)
                assert task.softmax_constant(mark=0.0) > task.linear_constant()
        assert task.softmax_constant(mark=0.0) / task.linear_constant() == pytest.approx(((d + 2) / d) ** (d / 2 + 1), rel=1e-4)
    for variance in (0.0, 50.0):
        task = isotropic(6, p=0.3, variance=variance)
        for length in (40, 1000):
            assert task.isotropic_optimum(length, mark=0.0).risk > task.isotropic_optimum(length, lp.LinearAttention).risk


def test_bayes_risk_is_below_all():
    task = isotropic(2, p=0.3)
    for length in (1, 50, 500):
        bayes = task.bayes_risk(length, draws=256)
        assert 0.1 <= bayes < min(task.isotropic_optimum(length, kind).risk for kind in KINDS) + 1e-12
    clean = dataclasses.replace(task, probability=0.0)
    assert clean.bayes_risk(30, draws=512) == pytest.approx(task.regression.bayes_risk(30, draws=512), rel=1e-12)
    assert task.bayes_risk(math.inf) == 0.1


def test_numbers_of_good_tokens():
    counts, weights = good_tokens(10.0, 0.3)
    assert_close(weights, binom.pmf(np.arange(11), 10, 0.7))
    counts, weights = good_tokens(1e6, 0.3)
    assert float(weights.sum()) == pytest.approx(1)
    assert float(weights @ counts) == pytest.approx(7e5, rel=1e-5)


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_cubature_is_exact(dim):
    def moment(points, weights, powers):
        return float((weights * (points ** torch.tensor(powers, dtype=F)).prod(-1)).sum())

    for powers in np.ndindex(*(5,) * min(dim, 2)):
        if sum(powers) > 5:
            continue
        exact = math.prod(0 if k % 2 else math.prod(range(1, k, 2)) for k in powers)
        padded = [*powers, *(0,) * (dim - len(powers))]
        assert moment(*quartic_points(dim), padded) == pytest.approx(exact, abs=1e-12)
        if sum(powers) <= 3:
            assert moment(*quadratic_points(dim), padded) == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: lp.training.MarkedOutliers("task", 0.1, 1.0), "regression: got str"),
        (lambda: isotropic(p=1.0), "probability: got 1.0"),
        (lambda: isotropic(p=-0.1), "probability: got -0.1"),
        (lambda: isotropic(variance=-1.0), "variance: got -1.0"),
        (lambda: isotropic(variance=math.inf), "variance"),
        (lambda: isotropic().layer("mean", 1.0, 0.0, 1.0), "kind: got 'mean'"),
        (lambda: isotropic().layer(lp.SoftmaxAttention, [1.0, 2.0, 3.0, 4.0], 0.0, 1.0), r"A: got shape \(4,\)"),
        (lambda: isotropic().layer(lp.SoftmaxAttention, 1.0, "x", 1.0), "mark: got str"),
        (lambda: isotropic().layer(lp.SoftmaxAttention, 1.0, 1.0, [1.0, 2.0]), r"read_out: got shape \(2,\)"),
        (lambda: isotropic(p=[0.1, 0.2]), r"probability: got shape \(2,\)"),
        (lambda: general().isotropic_optimum(10), "multiples of the identity"),
        (lambda: isotropic().isotropic_optimum(math.inf), "length"),
        (lambda: isotropic().isotropic_optimum(10, mark=math.nan), "mark: got nan"),
        (lambda: isotropic().isotropic_risk(0.5, -math.inf, 1.0, 10), "mark: got -inf"),
        (lambda: isotropic().softmax_constant(mark=math.nan), "mark: got nan"),
        (lambda: isotropic().crossing_variance(0), "length: got 0"),
        (lambda: isotropic().bayes_risk(0), "length: got 0"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(lp.InvalidArgumentError, match=words):
        call()
