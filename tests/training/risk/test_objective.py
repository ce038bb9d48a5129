"""What a review of the training layer found, kept mended."""

import dataclasses
import math

import pytest
import torch
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.training import Contexts, Parametrisation, SobolAverage
from largeprompt.training.gaps.tube import gronwall
from largeprompt.training.risk.objective import make_objective

F = torch.float64
EYE = torch.eye(2, dtype=F)


class Weighted(lp.training.GaussianTask):
    """A task with weights of its own and no closed form: inner tokens, Gauss-Hermite contexts."""

    token_dim = 2
    target_dim = 1

    def contexts(self, average):
        return lp.LinearRegression([[1.0]], [[1.0]], 0.1).product_contexts(12)

    def draw_contexts(self, batch, generator):
        raise NotImplementedError

    def draw_tokens(self, contexts, length, generator):
        raise NotImplementedError


def test_weights_of_a_task_are_kept():
    attention = lp.SoftmaxAttention([[0.8, 0.1], [0.0, 0.2]], [[0.1, 0.9]])
    task = Weighted()
    assert isinstance(task.contexts(SobolAverage(1)), Contexts)
    flow = lp.gradient_flow(task, attention, 10, 0.1, tolerance=1e-6)
    assert float(flow.risk[0]) == pytest.approx(float(task.risk(attention, 10)), rel=1e-12)


@dataclasses.dataclass(frozen=True)
class OnlyU(Parametrisation):
    """θ = U - U0 with V frozen: affine, not linear."""

    def start(self, attention):
        return 0 * attention.U.reshape(-1)

    def layer(self, theta):
        return theta.reshape(-1, 3, 3) + 0.2 * torch.eye(3, dtype=F), torch.ones(len(theta), 1, 3, dtype=F)

    def names(self):
        return [f"u{i}" for i in range(9)]


@dataclasses.dataclass(frozen=True)
class Squared(OnlyU):
    """θ -> θ², which is linear on zeros and ones alone."""

    def layer(self, theta):
        return theta.square().reshape(-1, 3, 3), torch.ones(len(theta), 1, 3, dtype=F)


@pytest.mark.parametrize("way", [OnlyU(), Squared()])
def test_parametrisations_of_users_have_right_hessians(way):
    task = lp.LinearRegression(EYE, EYE, 0.1)
    attention = lp.SoftmaxAttention(torch.eye(3, dtype=F), torch.ones(1, 3, dtype=F))
    objective, theta, _ = make_objective(task, attention, [20], way, SobolAverage(512))
    theta = theta + 0.3 * torch.ones_like(theta)
    step = 1e-5 * torch.eye(9, dtype=F).unsqueeze(1)
    slopes = torch.stack([(objective.gradient(theta + e)[1] - objective.gradient(theta - e)[1])[0] / 2e-5 for e in step])
    assert_close(objective.hessian(theta)[0], slopes, rtol=1e-6, atol=1e-8)


def test_large_noiseless_risks_are_not_called_diverged():
    task = lp.LinearRegression(1e6 * EYE, EYE, 0.0)
    start = lp.SoftmaxAttention(torch.diag(torch.tensor([1e-4, 1e-4, 0.0], dtype=F)), torch.tensor([[0.0, 0.0, 1e-4]], dtype=F))
    flow = lp.gradient_flow(task, start, math.inf, 1e-3, parametrisation="block", tolerance=1e-6)
    assert flow.status == "finished"


def test_an_interrupted_descent_keeps_its_last_step():
    task = lp.LinearRegression(EYE, EYE, 0.1)
    start = lp.SoftmaxAttention(0.1 * torch.eye(3, dtype=F), torch.tensor([[0.0, 0.0, 0.1]], dtype=F))

    def stop(step):
        if step == 7:
            raise KeyboardInterrupt

    runs = [
        lp.gradient_descent(task, start, 20, 0.01, 100, record=2, average=SobolAverage(256), progress=stop),
        lp.stochastic_gradient_descent(
            task, start, 20, 0.01, 100, 8, torch.Generator().manual_seed(0), record=2, average=SobolAverage(256), progress=stop
        ),
    ]
    for run in runs:
        assert run.status == "interrupted"
        assert "after step 7" in run.message
        assert float(run.times[-1]) == pytest.approx(0.07)
        with pytest.raises(KeyboardInterrupt):
            run.completed()


def test_coarse_envelopes_are_infinite_not_nan():
    ones = torch.ones(1, 2, dtype=F)
    assert float(gronwall(torch.tensor([0.0, 1000.0], dtype=F), ones, ones)[0, 1]) == math.inf
    assert float(gronwall(torch.tensor([0.0, 1000.0], dtype=F), 0 * ones, ones)[0, 1]) == 0


def test_bad_arguments_of_flows():
    task = lp.LinearRegression(EYE, EYE, 0.1)
    start = lp.SoftmaxAttention(torch.diag(torch.tensor([0.1, 0.1, 0.0], dtype=F)), torch.tensor([[0.0, 0.0, 0.1]], dtype=F))
    with pytest.raises(lp.InvalidArgumentError, match="gradient_tolerance"):
        lp.gradient_flow(task, start, 10, 1.0, gradient_tolerance=math.nan)
    with pytest.raises(lp.InvalidArgumentError, match="points"):
        lp.gradient_flow(task, start, 10, 1.0, parametrisation="block", average=SobolAverage(2))


def test_float32_layers_have_a_risk():
    task = lp.LinearRegression(EYE, EYE, 0.1)
    U, V = 0.3 * torch.eye(3), torch.ones(1, 3)
    double = task.risk(lp.SoftmaxAttention(U.double(), V.double()), 10, average=SobolAverage(256))
    assert float(task.risk(lp.SoftmaxAttention(U, V), 10, average=SobolAverage(256))) == pytest.approx(float(double), rel=1e-6)
