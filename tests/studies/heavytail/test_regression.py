"""N3: the exact risk of regression on one scalar input, heavy tails included."""

import math

import pytest
import torch

import largeprompt as lp
from largeprompt.studies.heavytail.regression import ScalarRegression
from largeprompt.studies.heavytail.training import prompts, read
from largeprompt.training import RiskError

F = torch.float64


@pytest.fixture(scope="module")
def gaussian():
    return ScalarRegression(lp.scalar.StudentTLaw(math.inf, 1.0), 40, 0.2)


@pytest.fixture(scope="module")
def heavy():
    return ScalarRegression(lp.StudentT(1, 9.0).law, 40, 0.2)


def attention(a, b):
    return lp.SoftmaxAttention([[a, 0.0], [0.0, 0.0]], [[0.0, b]])


@pytest.mark.parametrize(("a", "b"), [(0.3, 2.0), (1.0, 1.0), (2.0, 0.4)])
def test_gaussian_inputs_have_the_risk_of_the_task(gaussian, a, b):
    task = lp.LinearRegression([[1.0]], [[1.0]], 0.2)
    estimate = task.risk_estimate(attention(a, b), 40)
    assert gaussian.risk(a, b) == pytest.approx(
        estimate.value, abs=1e-5 + 8 * estimate.standard_error
    )
    assert gaussian.risk(-a, -b) == gaussian.risk(a, b)


def test_heavy_inputs_have_the_risk_of_drawn_prompts(heavy):
    a, b = torch.tensor(0.7, dtype=F), torch.tensor(0.9, dtype=F)
    x, y, query, clean, answer = prompts(
        heavy.law, (20_000,), 40, 0.2, torch.Generator().manual_seed(3)
    )
    said, mean, _ = read(a, b, x, y, query)
    loss = (said - answer).square() / 2
    assert abs(float(loss.mean()) - heavy.risk(0.7, 0.9)) < 6.5 * float(loss.std()) / 20_000**0.5
    assert heavy.spread == pytest.approx(1.0, abs=1e-9)
    torch.testing.assert_close(said, b * mean)
    assert float((answer - clean).var()) == pytest.approx(0.2, rel=0.05)


def test_the_optimum_is_a_minimum_and_descent_goes_down(heavy):
    best = heavy.optimum()
    for a, b in ((1.02, 1.0), (0.98, 1.0), (1.0, 1.02), (1.0, 0.98)):
        assert heavy.risk(best.a * a, best.b * b) > best.risk
    start, early, late = (
        heavy.risk(0.5, 0.5),
        heavy.descend(0.5, 0.5, 0.02, 100),
        heavy.descend(0.5, 0.5, 0.02, 1500),
    )
    assert start > early.risk > late.risk >= best.risk


def test_descent_is_that_of_the_library(gaussian):
    task = lp.LinearRegression([[1.0]], [[1.0]], 0.2)
    path = lp.gradient_descent(task, attention(0.5, 0.5), 40, 0.05, 60)
    end = path.at(path.times[-1])
    found = gaussian.descend(0.5, 0.5, 0.05, 60)
    assert (found.a, found.b) == pytest.approx((float(end.U[0, 0]), float(end.V[0, 1])), rel=5e-3)


def test_refused():
    with pytest.raises(lp.NoMomentError, match="risk is infinite"):
        ScalarRegression(lp.scalar.StudentTLaw(2.0, 1.0), 10, 0.1)
    for build, words in (
        (lambda: ScalarRegression(lp.scalar.RademacherLaw(), 10, 0.1), "law: got"),
        (lambda: ScalarRegression(lp.scalar.LaplaceLaw(), 1, 0.1), "length: got 1"),
        (lambda: ScalarRegression(lp.scalar.LaplaceLaw(), 10, 0.0), "noise_variance: got 0"),
    ):
        with pytest.raises(lp.InvalidArgumentError, match=words):
            build()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((-0.5, 0.5, 0.1, 5), "a: got -0.5"),
        ((1e-5, 0.5, 0.1, 5), "a: got 1e-05"),
        ((0.5, math.nan, 0.1, 5), "b: got nan"),
        ((0.5, "x", 0.1, 5), "b: got 'x'"),
        ((0.5, 0.5, 0.0, 5), "step_size: got 0"),
        ((0.5, 0.5, 0.1, 2.5), "steps: got 2.5"),
    ],
)
def test_bad_descent(gaussian, arguments, words):
    with pytest.raises(lp.InvalidArgumentError, match=words):
        gaussian.descend(*arguments)


def test_a_step_that_is_too_large_is_refused(gaussian):
    with pytest.raises(RiskError, match="diverged at step"):
        gaussian.descend(0.5, 0.5, 100.0, 200)


def test_a_is_kept_in_the_table(gaussian):
    with pytest.raises(lp.InvalidArgumentError, match="a: got"):
        gaussian.risk(1e-5, 1.0)
    for arguments, words in ((("x", 1.0), "a: got str"), ((1.0, "x"), "b: got str")):
        with pytest.raises(lp.InvalidArgumentError, match=words):
            gaussian.risk(*arguments)
