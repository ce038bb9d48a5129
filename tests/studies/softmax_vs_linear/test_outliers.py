"""Regression with marked outliers: exact risks of general layers, against drawn prompts and
regression without outliers.
"""

import dataclasses
import math

import numpy as np
import pytest
import torch
from outlier_examples import general_outliers, isotropic_outliers
from scipy.stats import binom
from torch.testing import assert_close
from training_examples import draw

import largeprompt as lp
from largeprompt.law.weights import weight_moments
from largeprompt.studies.softmax_vs_linear.outliers import MarkedOutliers, good_tokens
from largeprompt.studies.softmax_vs_linear.token_kinds import softmax_error
from largeprompt.training import SobolAverage

F = torch.float64
KINDS = (lp.SoftmaxAttention, lp.LinearAttention)


@pytest.mark.parametrize("length", [1, 2, 15])
def test_general_layers_against_drawn_prompts(length):
    """Any U and V in R^4, two of them: 12 comparisons within 6.5 standard errors (false alarms 1e-9
    in all).
    """
    task, n = general_outliers(), max(6000, 30_000 // length)
    tokens, query, answer = task.sample(n, length, torch.Generator().manual_seed(length))
    for seed in range(2):
        U, V = draw(4, 4, seed=seed) / 2, draw(1, 4, seed=seed + 10)
        for kind in (lp.SoftmaxAttention, lp.LinearAttention):
            loss = (kind(U, V)(lp.Empirical(tokens), query) - answer).square().sum(-1) / 2
            exact = task.risk_estimate(kind(U, V), length, average=SobolAverage(256))
            error = math.hypot(float(loss.std()) / math.sqrt(n), exact.standard_error)
            assert abs(float(loss.mean()) - exact.value) < 6.5 * error


def test_drawn_tokens_are_those_of_the_task():
    task = general_outliers()
    tokens, query, _ = task.sample(50, 2000, torch.Generator().manual_seed(0))
    mark = tokens[..., 3]
    assert set(mark.unique().tolist()) == {0.0, 1.0}
    assert abs(float(mark.mean()) - 0.3) < 6 * math.sqrt(0.21 / 100_000)
    wild = tokens[mark == 1][:, 2]
    assert abs(float(wild.square().mean()) - 5.0) < 6 * 5 * math.sqrt(2 / len(wild))
    assert bool((query[:, 2:] == torch.tensor([0.0, 1.0], dtype=F)).all())


def test_without_outliers_it_is_linear_regression():
    """Context by context to 1e-12, in the formula of the Gaussian law; and any mark leaves the risk
    as it is.
    """
    task = dataclasses.replace(general_outliers(), probability=0.0)
    U, V = torch.zeros(4, 4, dtype=F), torch.zeros(1, 4, dtype=F)
    U[:3, :2], V[0, :3] = draw(3, 2, seed=1), draw(3, seed=2)
    w, x = draw(8, 2, seed=3), draw(8, 2, seed=4)
    base = task.regression
    gamma, z = base.token_law(w).covariance, torch.nn.functional.pad(x, (0, 1))
    u = z @ U[:3, :3].mT
    q, a = (
        torch.einsum("ni,nij,nj->n", u, gamma, u),
        torch.einsum("i,nij,nj->n", V[0, :3], gamma, u),
    )
    spread, t = torch.einsum("i,nij,j->n", V[0, :3], gamma, V[0, :3]), (w * x).sum(-1)
    for length in (1, 2, 40, 10**9):
        f, w3, y2 = weight_moments(length, q.sqrt(), [[(2, 0)], [(3, 0)], [(2, 0)] * 2])
        expected = (a - t) ** 2 + f * (spread - a**2 + 2 * a * t) - 6 * (w3 - y2) * a**2
        assert_close(
            softmax_error(float(length), task.kinds(U, V, w, x)), expected, rtol=1e-12, atol=1e-13
        )
    plain = lp.SoftmaxAttention(U[:3, :3], V[:, :3])
    U[3, 3] = 7.0  # scores of a mark that no token carries
    linear = lp.LinearAttention(U, V)
    assert float(task.risk(linear, 9)) == pytest.approx(
        float(base.risk(lp.LinearAttention(plain.U, plain.V), 9)), rel=1e-12
    )
    found, expected = (
        task.risk_estimate(lp.SoftmaxAttention(U, V), 9, average=SobolAverage(512)),
        base.risk_estimate(plain, 9, average=SobolAverage(512)),
    )
    assert abs(found.value - expected.value) < 6 * math.hypot(
        found.standard_error, expected.standard_error
    )


def test_bayes_risk_is_below_all():
    task = isotropic_outliers(2, p=0.3)
    for length in (1, 50, 500):
        bayes = task.bayes_risk(length, average=SobolAverage(256))
        assert (
            0.1 <= bayes < min(task.isotropic_optimum(length, kind).risk for kind in KINDS) + 1e-12
        )
    clean = dataclasses.replace(task, probability=0.0)
    few = SobolAverage(512)
    assert clean.bayes_risk(30, average=few) == pytest.approx(
        task.regression.bayes_risk(30, average=few), rel=1e-12
    )
    assert task.bayes_risk(math.inf) == 0.1


def test_numbers_of_good_tokens():
    counts, weights = good_tokens(10.0, 0.3)
    assert_close(weights, binom.pmf(np.arange(11), 10, 0.7))
    counts, weights = good_tokens(1e6, 0.3)
    assert float(weights.sum()) == pytest.approx(1)
    assert float(weights @ counts) == pytest.approx(7e5, rel=1e-5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: MarkedOutliers("task", 0.1, 1.0), "regression: got str"),
        (lambda: isotropic_outliers(p=1.0), "probability: got 1.0"),
        (lambda: isotropic_outliers(p=-0.1), "probability: got -0.1"),
        (lambda: isotropic_outliers(variance=-1.0), "variance: got -1.0"),
        (lambda: isotropic_outliers(variance=math.inf), "variance"),
        (lambda: isotropic_outliers().layer("mean", 1.0, 0.0, 1.0), "kind: got 'mean'"),
        (
            lambda: isotropic_outliers().layer(lp.SoftmaxAttention, [1.0, 2.0, 3.0, 4.0], 0.0, 1.0),
            r"A: got shape \(4,\)",
        ),
        (lambda: isotropic_outliers().layer(lp.SoftmaxAttention, 1.0, "x", 1.0), "mark: got 'x'"),
        (
            lambda: isotropic_outliers().layer(lp.SoftmaxAttention, 1.0, 1.0, [1.0, 2.0]),
            r"read_out: got shape \(2,\)",
        ),
        (lambda: isotropic_outliers(p=[0.1, 0.2]), r"probability: got shape \(2,\)"),
        (lambda: isotropic_outliers().bayes_risk(0), "length: got 0"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(lp.InvalidArgumentError, match=words):
        call()


def test_too_few_points_to_calibrate_are_refused():
    """They were taken with equal weights, without a word; in five dimensions 1024 leave 2 %."""
    eye = torch.eye(5, dtype=torch.float64)
    task = MarkedOutliers(lp.LinearRegression(eye, eye / 5, 0.1), probability=0.2, variance=25.0)
    layer = task.layer(lp.SoftmaxAttention, 1.0, 3.0, 1.0)
    with pytest.raises(
        lp.InvalidArgumentError,
        match=r"average: got 1024 points; allowed: 4096 in dimension 5.*SobolAverage\(4096\)",
    ):
        task.risk(layer, 100, average=SobolAverage(1024))
