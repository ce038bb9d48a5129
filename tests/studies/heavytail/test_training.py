"""N3: the exact risk of regression on one scalar input, its descent, and the gradient of SGD."""

import dataclasses
import math

import pytest
import torch

import largeprompt as lp
from largeprompt.runs.study import quiet
from largeprompt.studies.heavytail.study import STUDY
from largeprompt.studies.heavytail.training import START, prompts, read, scalar_risk, train

F = torch.float64


@pytest.fixture(scope="module")
def gaussian():
    return scalar_risk(lp.scalar.StudentTLaw(math.inf, 1.0), 40, 0.2)


@pytest.fixture(scope="module")
def heavy():
    return scalar_risk(lp.StudentT(1, 9.0).law, 40, 0.2)


@pytest.mark.parametrize(("a", "b"), [(0.3, 2.0), (1.0, 1.0), (2.0, 0.4)])
def test_gaussian_inputs_have_the_risk_of_the_task(gaussian, a, b):
    task = lp.LinearRegression([[1.0]], [[1.0]], 0.2)
    attention = lp.SoftmaxAttention([[a, 0.0], [0.0, 0.0]], [[0.0, b]])
    assert gaussian(a, b) == pytest.approx(float(task.risk(attention, 40)), abs=2e-5)


def test_heavy_inputs_have_the_risk_of_drawn_prompts(heavy):
    law = lp.StudentT(1, 9.0).law
    x, y, query, answer = prompts(law, (20_000,), 40, 0.2, torch.Generator().manual_seed(3))
    mean, _ = read(torch.tensor(0.7, dtype=F), x, y, query)
    loss = (0.9 * mean - answer).square() / 2
    assert abs(float(loss.mean()) - heavy(0.7, 0.9)) < 6.5 * float(loss.std()) / 20_000**0.5


def test_descent_goes_down_to_the_least_risk(heavy):
    early, late = heavy.descend(0.02, 100), heavy.descend(0.02, 1500)
    assert heavy(START, START) > early > late >= heavy.least()
    assert all(heavy(a, b) >= heavy.least() for a in (0.5, 0.9, 1.4) for b in (0.5, 0.9, 1.4))


def test_descent_is_that_of_the_library(gaussian):
    task = lp.LinearRegression([[1.0]], [[1.0]], 0.2)
    start = lp.SoftmaxAttention([[START, 0.0], [0.0, 0.0]], [[0.0, START]])
    path = lp.gradient_descent(task, start, 40, 0.05, 60)
    assert gaussian.descend(0.05, 60) == pytest.approx(float(path.risk[-1]), rel=1e-4)


def test_sgd_gradient_is_the_derivative_of_the_loss():
    law = lp.scalar.StudentTLaw(3.0, 1.0)
    x, y, query, answer = prompts(law, (2, 8), 20, 0.1, torch.Generator().manual_seed(1))
    theta = torch.tensor([[0.6, 0.8], [0.3, 1.2]], dtype=F, requires_grad=True)
    a, b = theta[:, :1], theta[:, 1:]
    mean, covariance = read(a, x, y, query)
    error = b * mean - answer
    (expected,) = torch.autograd.grad((error.square() / 2).mean(-1).sum(), theta)
    closed = torch.stack([(error * b * covariance * query).mean(-1), (error * mean).mean(-1)], -1)
    torch.testing.assert_close(closed.detach(), expected)


def test_inputs_without_a_variance_have_no_finite_risk():
    config = dataclasses.replace(STUDY.quick, steps=20, runs=4, batch_size=4, training_length=10)
    found = train(config, 1.5, quiet)
    assert bool((found.run_risk == math.inf).all())
    assert math.isinf(float(found.least_risk[0]))
