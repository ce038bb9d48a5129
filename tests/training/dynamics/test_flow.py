"""Gradient flow on the exact risk (claims C5 and C6): closed forms, limits, endings."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from torch.testing import assert_close
from training_examples import blocks, noiseless, toeplitz

import largeprompt as lp
from largeprompt.training import SobolAverage, isotropic_optimum

F = torch.float64


EYE = torch.eye(2, dtype=F)
A = torch.tensor([[0.7, 0.2], [-0.1, 0.5]], dtype=F)


def block(A, b):
    U, V = torch.zeros(3, 3, dtype=F), torch.zeros(1, 3, dtype=F)
    U[:2, :2], V[0, 2] = A, b
    return lp.SoftmaxAttention(U, V)


@pytest.mark.parametrize(
    "covariance", [torch.eye(3, dtype=F), toeplitz(4)], ids=["identity", "Toeplitz"]
)
def test_infinite_prompt_flow_reaches_the_endpoint_of_the_theorem(covariance):
    """C6: b -> tr(Σ^{-2})^{1/4}, A -> Σ^{-1}/b, ‖A‖² - b² conserved to 1e-8, Bayes risk reached;
    and the closed equation's path.
    """
    d, task = covariance.shape[0], noiseless(covariance)
    flow = lp.gradient_flow(task, blocks(d), math.inf, 120.0, parametrization="block")
    assert flow.status == "finished"
    b = float(torch.linalg.inv(covariance @ covariance).trace()) ** 0.25
    end = flow.at(120.0)
    assert float(end.V[0, d]) == pytest.approx(b, abs=1e-6)
    assert_close(end.U[:d, :d], torch.linalg.inv(covariance) / b, rtol=0, atol=1e-6)
    assert float((flow.conserved - flow.conserved[0]).abs().max()) < 1e-8
    assert float(flow.risk[-1]) < 1e-9
    S = covariance.numpy()

    def closed(_, y):
        A, b = y[:-1].reshape(d, d), y[-1]
        turn = S @ S @ A @ S
        return np.append(
            (b * S @ S - b * b * turn).ravel(), np.trace(A.T @ S @ S) - b * np.trace(A.T @ turn)
        )

    path = solve_ivp(
        closed, (0, 15), flow.parameters[0].numpy(), method="DOP853", rtol=1e-11, atol=1e-13
    )
    np.testing.assert_allclose(flow.theta(15.0), path.y[:, -1], atol=1e-7)


def test_finite_prompt_flow_tends_to_the_infinite_one():
    """While the scores are small the distance of the paths falls like 1/L, softmax and linear
    attention alike.
    """
    task = lp.LinearRegression(torch.eye(3, dtype=F), torch.eye(3, dtype=F), 0.1)
    for kind in (lp.SoftmaxAttention, lp.LinearAttention):
        start = blocks(3, kind=kind)
        flow = lp.gradient_flow(
            task,
            start,
            [10**3, 10**4, 10**5, math.inf],
            0.7,
            parametrization="block",
            tolerance=1e-8,
        )
        gap = (flow.theta(0.7)[:3] - flow.theta(0.7)[3]).norm(dim=-1)
        np.testing.assert_allclose(gap[:-1] / gap[1:], 10.0, rtol=0.15)


def test_full_flow_keeps_the_blocks():
    """The block family is preserved: without noise of quadrature, both parametrizations give the
    same path.
    """
    task = lp.LinearRegression(torch.eye(1, dtype=F), torch.eye(1, dtype=F), 0.1)
    full, block = (
        lp.gradient_flow(task, blocks(1, 0.5), 1000, 2.0, parametrization=p, times=[2.0])
        for p in ("full", "block")
    )
    assert_close(full.at(2.0).U[0, 0], block.at(2.0).U[0, 0], rtol=1e-3, atol=1e-3)
    assert float(full.at(2.0).U[1].abs().max()) < 1e-2


def test_risk_falls_along_the_flow_and_linear_attention_sits_beside():
    task = lp.LinearRegression(toeplitz(3), torch.eye(3, dtype=F) / 3, 0.1)
    for kind in (lp.SoftmaxAttention, lp.LinearAttention):
        flow = lp.gradient_flow(
            task,
            blocks(3, kind=kind),
            [20, 200],
            10.0,
            parametrization="block",
            times=np.linspace(0, 10, 41),
        )
        assert bool((flow.risk.diff(dim=-1) <= 1e-12).all())
        assert type(flow.at(3.0)) is kind
        assert float(flow.risk[1, -1]) < float(flow.risk[0, -1])
        assert float(flow.risk[1, -1]) > task.bayes_risk(200)


def test_limits_do_not_commute():
    """A long prompt follows the infinite one for bounded times, then drifts on the time scale L to
    another optimum.
    """
    task = noiseless(torch.eye(3, dtype=F))
    flow = lp.gradient_flow(
        task,
        blocks(3),
        [10**5, math.inf],
        2e5,
        parametrization="block",
        tolerance=1e-6,
        times=[3.0, 1e3, 2e5],
    )
    b = flow.parameters[:, :, -1]
    assert abs(float(b[0, 1] - b[1, 1])) < 0.01  # t = 3
    assert float(b[1, -1]) == pytest.approx(3**0.25, abs=1e-5)
    assert 2.3 < float(b[0, -1]) < 2.5  # 2.49 as L grows, never 1.316
    assert float(flow.conserved[0, -1]) > 3
    assert float(flow.risk[0, -1]) < float(flow.risk[0, 1]) / 4  # and it pays


def test_flow_stops_on_a_small_gradient_and_on_ctrl_c():
    task = noiseless(torch.eye(1, dtype=F))
    flow = lp.gradient_flow(
        task, blocks(1), math.inf, 1e6, parametrization="block", gradient_tolerance=1e-6
    )
    assert flow.status == "converged"
    assert float(flow.gradient_norm[-1]) < 1e-6

    def stop(time):
        if time > 0.5:
            raise KeyboardInterrupt

    partial = lp.gradient_flow(task, blocks(1), 100, 50.0, parametrization="block", progress=stop)
    assert partial.status == "interrupted"
    assert 0.5 < float(partial.times[-1]) < 50


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda t, a: lp.gradient_flow(t, a, 0, 1.0), "length: got 0"),
        (lambda t, a: lp.gradient_flow(t, a, 10, -1.0), "until: got -1"),
        (lambda t, a: lp.gradient_flow(t, a, 10, 1.0, method="Euler"), "method"),
        (lambda t, a: lp.gradient_flow(t, a, 10, 1.0, parametrization="other"), "parametrization"),
        (lambda t, a: lp.gradient_flow(t, a, 10, 1.0, times=[2.0]), "times"),
        (lambda t, a: lp.gradient_flow("task", a, 10, 1.0), "task"),
        (
            lambda t, a: lp.gradient_flow(
                t, lp.SoftmaxAttention(np.eye(2), np.ones((1, 2))), 10, 1.0, parametrization="block"
            ),
            "outside",
        ),
    ],
)
def test_bad_input(call, words):
    task = lp.LinearRegression([[1.0]], [[1.0]], 0.1)
    with pytest.raises(lp.InvalidArgumentError, match=words):
        call(task, blocks(1))


def test_large_noiseless_risks_are_not_called_diverged():
    task = lp.LinearRegression(1e6 * EYE, EYE, 0.0)
    start = lp.SoftmaxAttention(
        torch.diag(torch.tensor([1e-4, 1e-4, 0.0], dtype=F)),
        torch.tensor([[0.0, 0.0, 1e-4]], dtype=F),
    )
    flow = lp.gradient_flow(
        task, start, math.inf, 1e-3, parametrization="block", tolerance=1e-6, times=[1e-3]
    )
    assert flow.status == "finished"


def test_bad_arguments_of_flows():
    task = lp.LinearRegression(EYE, EYE, 0.1)
    start = lp.SoftmaxAttention(
        torch.diag(torch.tensor([0.1, 0.1, 0.0], dtype=F)), torch.tensor([[0.0, 0.0, 0.1]], dtype=F)
    )
    with pytest.raises(lp.InvalidArgumentError, match="gradient_tolerance"):
        lp.gradient_flow(task, start, 10, 1.0, gradient_tolerance=math.nan)


def test_the_flow_ends_at_the_optimum_of_its_length():
    """d = 2, L = 30: within 1e-8 of a minimisation that knows no flow; points used to leave this
    end open by 0.004.
    """
    task = lp.LinearRegression(EYE, EYE / 2, 0.1)
    end = lp.gradient_flow(
        task, block(0.5 * EYE, 0.5), 30, 1000.0, parametrization="block", times=[1000.0]
    ).at(1000.0)
    best = isotropic_optimum(task, 30, lp.SoftmaxAttention)
    assert_close(end.U[:2, :2], best.a * EYE, rtol=0.0, atol=1e-8)
    assert float(end.V[0, 2]) == pytest.approx(best.b, abs=1e-8)


def test_a_full_flow_that_starts_in_blocks_stays_there_and_needs_no_points():
    """Two points and four thousand give the same flow, that of the blocks."""
    task, start = lp.LinearRegression(EYE, EYE, 0.1), block(0.4 * EYE, 0.5)
    apart = lp.gradient_flow(task, start, 30, 5.0, parametrization="block", times=[5.0])
    for points in (2, 512):
        flow = lp.gradient_flow(task, start, 30, 5.0, average=SobolAverage(points), times=[5.0])
        end = flow.at(5.0)
        assert not end.U[2].any()
        assert not end.V[0, :2].any()
        torch.testing.assert_close(end.U, apart.at(5.0).U, rtol=0, atol=1e-7)
        assert float(flow.risk[-1]) == pytest.approx(float(apart.risk[-1]), abs=1e-9)
