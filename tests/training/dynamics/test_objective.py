"""The objective of training: derivatives in every parametrization, those of users among them, and
weights of a task.
"""

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.training import Contexts, Parametrization, SobolAverage
from largeprompt.training.dynamics.objective import make_objective
from largeprompt.training.dynamics.parameters import Block
from largeprompt.training.risk.scores import RiskError

F = torch.float64
EYE = torch.eye(2, dtype=F)


class Weighted(lp.training.GaussianTask):
    """A task with weights of its own and no closed form: inner tokens, Gauss-Hermite contexts."""

    token_dim = 2
    target_dim = 1

    def contexts(self, average):
        points, mass = (torch.from_numpy(part) for part in np.polynomial.hermite_e.hermegauss(12))
        w, x = torch.cartesian_prod(points, points).T.unsqueeze(-1)
        weight = torch.outer(mass, mass).reshape(-1) / mass.sum() ** 2
        law = lp.LinearRegression([[1.0]], [[1.0]], 0.1).token_law(w)
        query = torch.nn.functional.pad(x, (0, 1))
        return Contexts(law.covariance, query, w * x, weight, 0.1)

    def draw_contexts(self, batch, generator):
        raise NotImplementedError

    def draw_tokens(self, contexts, length, generator):
        raise NotImplementedError


KINDS = {"softmax": lp.SoftmaxAttention, "linear": lp.LinearAttention}


def task(d=2, noise=0.1, query=None):
    generator = torch.Generator().manual_seed(d)
    root = torch.randn(d, d, generator=generator, dtype=F)
    return lp.LinearRegression(
        root @ root.mT / d + torch.eye(d, dtype=F) / 2, torch.eye(d, dtype=F) * 0.6, noise, query
    )


def test_weights_of_a_task_are_kept():
    attention = lp.SoftmaxAttention([[0.8, 0.1], [0.0, 0.2]], [[0.1, 0.9]])
    task = Weighted()
    assert isinstance(task.contexts(SobolAverage(1)), Contexts)
    flow = lp.gradient_flow(task, attention, 10, 0.1, tolerance=1e-6)
    assert float(flow.risk[0]) == pytest.approx(float(task.risk(attention, 10)), rel=1e-12)


@dataclasses.dataclass(frozen=True)
class OnlyU(Parametrization):
    """θ = U - U0 with V frozen: affine, not linear."""

    def start(self, attention):
        return 0 * attention.U.reshape(-1)

    def layer(self, theta):
        return theta.reshape(-1, 3, 3) + 0.2 * torch.eye(3, dtype=F), torch.ones(
            len(theta), 1, 3, dtype=F
        )

    def names(self):
        return [f"u{i}" for i in range(9)]


@dataclasses.dataclass(frozen=True)
class Squared(OnlyU):
    """θ -> θ², which is linear on zeros and ones alone."""

    def layer(self, theta):
        return theta.square().reshape(-1, 3, 3), torch.ones(len(theta), 1, 3, dtype=F)


@pytest.mark.parametrize("way", [OnlyU(), Squared()])
def test_parametrizations_of_users_have_right_hessians(way):
    task = lp.LinearRegression(EYE, EYE, 0.1)
    attention = lp.SoftmaxAttention(torch.eye(3, dtype=F), torch.ones(1, 3, dtype=F))
    objective, theta, _ = make_objective(task, attention, [20], way)
    theta = theta + 0.3 * torch.ones_like(theta)
    step = 1e-5 * torch.eye(9, dtype=F).unsqueeze(1)
    slopes = torch.stack(
        [
            (objective.gradient(theta + e)[1] - objective.gradient(theta - e)[1])[0] / 2e-5
            for e in step
        ]
    )
    assert_close(objective.hessian(theta)[0], slopes, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["full", "block", "factorized"])
def test_hessian_of_every_parametrization_is_the_slope_of_its_gradient(kind, way):
    d = 2
    start = lp.training.Factorized.default(d + 1, torch.Generator().manual_seed(0))
    U, V = (part[0] for part in start.layer(start.start().unsqueeze(0)))
    if way == "block":
        U, V = (
            torch.nn.functional.pad(U[:d, :d], (0, 1, 0, 1)),
            torch.nn.functional.pad(V[:, d:], (d, 0)),
        )
    objective, theta, _ = make_objective(
        task(), KINDS[kind](U, V), [3, 50, math.inf], start if way == "factorized" else way
    )
    theta = theta + 0.05 * torch.randn(
        theta.shape, generator=torch.Generator().manual_seed(1), dtype=F
    )
    gradient, hessian, step = objective.gradient(theta)[1], objective.hessian(theta), 1e-5
    for i in range(theta.shape[-1]):
        move = torch.zeros_like(theta)
        move[:, i] = step
        assert_close(
            (objective.risks(theta + move) - objective.risks(theta - move)) / (2 * step),
            gradient[:, i],
            rtol=1e-6,
            atol=1e-9,
        )
        slope = (objective.gradient(theta + move)[1] - objective.gradient(theta - move)[1]) / (
            2 * step
        )
        assert_close(slope, hessian[:, i], rtol=1e-6, atol=1e-8)


def test_a_risk_below_the_noise_is_refused(monkeypatch):
    """An average that is too rough for large scores is an error, not a risk below the noise."""
    chosen = task(3, noise=0.1)
    U, V = 3 * torch.eye(4, dtype=F), torch.ones(1, 4, dtype=F)
    objective, theta, _ = make_objective(chosen, lp.SoftmaxAttention(U, V), 10, "full")
    monkeypatch.setattr(lp.LinearRegression, "answer_noise", 1e3)
    with pytest.raises(RiskError, match=r"below the noise .* Use more points"):
        objective.gradient(theta)


@pytest.mark.parametrize("length", [10, 10**4, 10**6, 10**12])
def test_runs_of_general_layers_report_exact_risks_and_descend_good_ones(length):
    """With a step of 0.3 in ρ the reported ones were 7e-6 off at 10 tokens and 4e-4 at 10^12."""
    chosen, layer = (
        lp.LinearRegression([[1.0]], [[1.0]], 0.0),
        lp.SoftmaxAttention([[2.0, 0.0], [0.02, 0.0]], [[0.1, 0.5]]),
    )
    exact = float(chosen.risk(layer, length))
    flow = lp.gradient_flow(chosen, layer, length, 0.05, times=[0.0, 0.05], tolerance=1e-4)
    descent = lp.gradient_descent(chosen, layer, length, 0.01, 2)
    for run in (flow, descent):
        assert float(run.risk[0]) == pytest.approx(exact, rel=1e-14)
        assert float(run.risk[-1]) == pytest.approx(
            float(chosen.risk(run.at(float(run.times[-1])), length)), rel=1e-13
        )
        assert float(run.objective.gradient(run.parameters[:1])[0]) == pytest.approx(
            exact, rel=1e-4 if run is flow else 1e-7
        )


def test_block_runs_take_sums_of_exponentials_where_the_tolerance_allows():
    layer = lp.SoftmaxAttention(
        [[0.7, 0.1, 0.0], [0.2, 0.5, 0.0], [0.0, 0.0, 0.0]], [[0.0, 0.0, 1.3]]
    )
    (loose, theta, _), (fine, *_) = (
        make_objective(task(), layer, [5, 200], "block", tolerance=t) for t in (1e-5, 1e-9)
    )
    for one, other, close in (
        (loose.gradient(theta)[1], fine.gradient(theta)[1], 1e-5),
        (loose.hessian(theta), fine.hessian(theta), 1e-3),
        (loose.risks(theta), fine.gradient(theta)[0], 1e-9),
    ):
        assert_close(one, other, rtol=close, atol=close)
    assert not torch.equal(loose.gradient(theta)[0], fine.gradient(theta)[0])


@pytest.mark.parametrize("form", ["block", "full"])
def test_hessians_of_regression_on_any_law_are_slopes_of_gradients(form):
    """In blocks, and across them where the flow does not go."""
    task = lp.training.MeasureRegression(lp.Uniform(1), [[1.0]], 0.1)
    layer = lp.SoftmaxAttention([[0.7, 0.0], [0.0, 0.0]], [[0.0, 0.8]])
    objective, start, _ = make_objective(task, layer, [5, 1000], form)
    hessian, step = objective.hessian(start), 1e-3
    for i in range(start.shape[-1]):
        move = torch.zeros_like(start)
        move[:, i] = step
        ends = [objective.gradient(start + sign * move)[1] for sign in (1, -1)]
        slope = (ends[0] - ends[1]) / (2 * step)
        assert_close(hessian[:, i], slope, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize(
    ("kind", "lengths"),
    [(lp.SoftmaxAttention, [math.inf] * 2), (lp.LinearAttention, [7, math.inf])],
)
def test_closed_forms_in_blocks_are_the_derivatives_of_the_risk_of_any_layer(kind, lengths):
    """Softmax on infinite prompts and linear attention have formulas of their own there; autograd
    knows the layer as a whole.
    """
    draws = torch.randn(4, 3, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    sigma, prior, query = (each @ each.mT + torch.eye(3, dtype=torch.float64) for each in draws[:3])
    task, start = (
        lp.LinearRegression(sigma, prior, 0.1, query),
        torch.nn.functional.pad(draws[3], (0, 1, 0, 1)),
    )
    attention = kind(start, torch.tensor([[0.0, 0.0, 0.0, 0.7]], dtype=torch.float64))
    objective, theta, _ = make_objective(task, attention, lengths, "block")
    value, gradient = objective.gradient(theta)
    hessian = objective.hessian(theta)
    for run, length in enumerate(lengths):

        def risk(one, length=length):
            U, V = Block(3).layer(one.unsqueeze(0))
            return (
                task.limit_risk(U, V) if math.isinf(length) else task.linear_risk(U, V, [length])
            )[0]

        assert_close(value[run], risk(theta[run]), rtol=1e-12, atol=0.0)
        assert_close(
            gradient[run],
            torch.autograd.functional.jacobian(risk, theta[run]),
            rtol=1e-11,
            atol=1e-12,
        )
        assert_close(
            hessian[run],
            torch.autograd.functional.hessian(risk, theta[run]),
            rtol=1e-11,
            atol=1e-12,
        )
