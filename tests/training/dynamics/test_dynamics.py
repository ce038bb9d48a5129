"""Flow, descent and stochastic descent on the exact risk: closed forms, orders, endings."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.training import SobolAverage
from largeprompt.training.dynamics.descent import prompt_gradients

F = torch.float64


def toeplitz(d):
    return torch.tensor([[0.5 ** abs(i - j) for j in range(d)] for i in range(d)], dtype=F)


def blocks(d, alpha=0.3, kind=lp.SoftmaxAttention):
    """Balanced start of the paper's Theorem 5.1: ‖A‖_F = b = α, A a multiple of the identity."""
    U, V = torch.zeros(d + 1, d + 1, dtype=F), torch.zeros(1, d + 1, dtype=F)
    U[:d, :d], V[0, d] = alpha * torch.eye(d, dtype=F) / math.sqrt(d), alpha
    return kind(U, V)


def noiseless(covariance):
    d = covariance.shape[0]
    return lp.LinearRegression(covariance, torch.eye(d, dtype=F), 0.0)


@pytest.mark.parametrize("covariance", [torch.eye(3, dtype=F), toeplitz(4)], ids=["identity", "Toeplitz"])
def test_infinite_prompt_flow_reaches_the_endpoint_of_the_theorem(covariance):
    """C6: b -> tr(Σ^{-2})^{1/4}, A -> Σ^{-1}/b, ‖A‖² - b² conserved to 1e-8, Bayes risk reached; and the closed equation's path."""
    d, task = covariance.shape[0], noiseless(covariance)
    flow = lp.gradient_flow(task, blocks(d), math.inf, 120.0, parametrisation="block", average=SobolAverage(64))
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
        return np.append((b * S @ S - b * b * turn).ravel(), np.trace(A.T @ S @ S) - b * np.trace(A.T @ turn))

    path = solve_ivp(closed, (0, 15), flow.parameters[0].numpy(), method="DOP853", rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(flow.theta(15.0), path.y[:, -1], atol=1e-7)


def test_finite_prompt_flow_tends_to_the_infinite_one():
    """While the scores are small the distance of the paths falls like 1/L, softmax and linear attention alike."""
    task = lp.LinearRegression(torch.eye(3, dtype=F), torch.eye(3, dtype=F), 0.1)
    for kind in (lp.SoftmaxAttention, lp.LinearAttention):
        start = blocks(3, kind=kind)
        flow = lp.gradient_flow(
            task, start, [10**3, 10**4, 10**5, math.inf], 0.7, parametrisation="block", average=SobolAverage(128), tolerance=1e-8
        )
        gap = (flow.theta(0.7)[:3] - flow.theta(0.7)[3]).norm(dim=-1)
        np.testing.assert_allclose(gap[:-1] / gap[1:], 10.0, rtol=0.15)


def test_full_flow_keeps_the_blocks():
    """The block family is preserved: without noise of quadrature, both parametrisations give the same path."""
    task = lp.LinearRegression(torch.eye(1, dtype=F), torch.eye(1, dtype=F), 0.1)
    full, block = (
        lp.gradient_flow(task, blocks(1, 0.5), 1000, 4.0, parametrisation=p, average=SobolAverage(4096)) for p in ("full", "block")
    )
    assert_close(full.at(4.0).U[0, 0], block.at(4.0).U[0, 0], rtol=1e-3, atol=1e-3)
    assert float(full.at(4.0).U[1].abs().max()) < 1e-2


def test_descent_tends_to_the_flow_at_first_order():
    task = noiseless(toeplitz(2))
    flow = lp.gradient_flow(task, blocks(2), 100, 4.0, parametrisation="block", average=SobolAverage(128))
    gaps = [
        float(
            (
                lp.gradient_descent(
                    task, blocks(2), 100, eta, round(4 / eta), parametrisation="block", average=SobolAverage(128)
                ).parameters[-1]
                - flow.theta(4.0)
            ).norm()
        )
        for eta in (0.04, 0.02, 0.01)
    ]
    slopes = np.log2(np.array(gaps[:-1]) / gaps[1:])
    np.testing.assert_allclose(slopes, 1.0, atol=0.1)


def test_risk_falls_along_the_flow_and_linear_attention_sits_beside():
    task = lp.LinearRegression(toeplitz(3), torch.eye(3, dtype=F) / 3, 0.1)
    for kind in (lp.SoftmaxAttention, lp.LinearAttention):
        flow = lp.gradient_flow(task, blocks(3, kind=kind), [20, 200], 10.0, parametrisation="block", average=SobolAverage(256))
        assert bool((flow.risk.diff(dim=-1) <= 1e-12).all())
        assert type(flow.at(3.0)) is kind
        assert float(flow.risk[1, -1]) < float(flow.risk[0, -1])
        assert float(flow.risk[1, -1]) > task.bayes_risk(200)


def test_limits_do_not_commute():
    """A long prompt follows the infinite one for bounded times, then drifts on the time scale L to another optimum."""
    task = noiseless(torch.eye(3, dtype=F))
    flow = lp.gradient_flow(
        task,
        blocks(3),
        [10**5, math.inf],
        2e5,
        parametrisation="block",
        average=SobolAverage(256),
        tolerance=1e-6,
        times=[3.0, 1e3, 2e5],
    )
    b = flow.parameters[:, :, -1]
    assert abs(float(b[0, 1] - b[1, 1])) < 0.01  # t = 3
    assert float(b[1, -1]) == pytest.approx(3**0.25, abs=1e-5)
    assert 2.3 < float(b[0, -1]) < 2.5  # 2.49 as L grows, never 1.316
    assert float(flow.conserved[0, -1]) > 3
    assert float(flow.risk[0, -1]) < float(flow.risk[0, 1]) / 4  # and it pays


def test_stochastic_gradients_are_unbiased():
    """Mean of drawn gradients against the exact gradient, 6.5 standard errors (1e-10 each, 24 entries)."""
    task = lp.LinearRegression(toeplitz(2), torch.eye(2, dtype=F), 0.2)
    U, V = 0.4 * torch.randn(3, 3, generator=torch.Generator().manual_seed(0), dtype=F), torch.tensor([[0.3, -0.2, 0.9]], dtype=F)
    for kind in (lp.SoftmaxAttention, lp.LinearAttention):
        arguments = [U.clone().requires_grad_(), V.clone().requires_grad_()]
        exact = torch.autograd.grad(task.risk(kind(*arguments), 7, average=SobolAverage(2**15)), arguments)
        generator = torch.Generator().manual_seed(1)
        drawn = [prompt_gradients(task, kind(U, V), 7, 500, generator) for _ in range(200)]
        for i, truth in enumerate(exact, start=1):
            samples = torch.stack([one[i] for one in drawn])
            assert bool(((samples.mean(0) - truth).abs() < 6.5 * samples.std(0) / math.sqrt(200) + 3e-3).all())
        tokens, query, answer = task.sample(50, 7, torch.Generator().manual_seed(2))
        loss = (kind(*arguments)(lp.Empirical(tokens), query) - answer).square().sum(-1).mean() / 2
        by_hand = prompt_gradients(task, kind(U, V), 7, 50, torch.Generator().manual_seed(2))
        assert_close(by_hand[0], loss.detach())
        for actual, wanted in zip(by_hand[1:], torch.autograd.grad(loss, arguments), strict=True):
            assert_close(actual, wanted)


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_stochastic_descent_learns_and_repeats(optimizer):
    task = lp.LinearRegression(torch.eye(2, dtype=F), torch.eye(2, dtype=F) / 2, 0.1)
    runs = [
        lp.stochastic_gradient_descent(
            task,
            blocks(2),
            20,
            0.02,
            150,
            64,
            torch.Generator().manual_seed(3),
            parametrisation="block",
            optimizer=optimizer,
            average=SobolAverage(128),
        )
        for _ in range(2)
    ]
    assert torch.equal(runs[0].parameters, runs[1].parameters)
    assert float(runs[0].risk[-1]) < float(runs[0].risk[0])
    flow = lp.gradient_flow(task, blocks(2), 20, 3.0, parametrisation="block", average=SobolAverage(128), tolerance=1e-6)
    if optimizer == "SGD":  # 150 steps of 0.02 are time 3; noise of order sqrt(0.02·3/64)
        assert float((runs[0].parameters[-1] - flow.theta(3.0)).norm()) < 0.15


def test_long_prompts_stream():
    task = lp.LinearRegression(torch.eye(2, dtype=F), torch.eye(2, dtype=F) / 2, 0.0)
    attention = lp.SoftmaxAttention(torch.diag(torch.tensor([1.0, 1.0, 0.0], dtype=F)), torch.tensor([[0.0, 0.0, 1.0]], dtype=F))
    loss, in_u, in_v = prompt_gradients(task, attention, 10**6, 2, torch.Generator().manual_seed(0))
    assert float(loss) < 1e-2  # the infinite prompt reads w exactly
    assert bool(torch.isfinite(in_u).all() & torch.isfinite(in_v).all())


def test_factorised_parameters_follow_the_chain_rule():
    task = lp.LinearRegression(toeplitz(2), torch.eye(2, dtype=F) / 2, 0.1)
    model = lp.training.Factorised.default(3, torch.Generator().manual_seed(0))
    U, V = model.layer(model.start()[None])
    assert_close(U[0], model.K.mT @ model.Q / math.sqrt(3))
    flow = lp.gradient_flow(
        task, lp.SoftmaxAttention(U[0], V[0]), [10, 100], 3.0, parametrisation=model, average=SobolAverage(128), tolerance=1e-7
    )
    assert flow.dataset.sizes == {"length": 2, "time": 201, "parameter": 30}
    assert float((flow.conserved - flow.conserved[:, :1]).abs().max()) < 1e-6  # ‖K‖² - ‖Q‖², at every length
    assert bool((flow.risk[:, -1] < flow.risk[:, 0]).all())


def test_trajectory_has_times_dataset_and_dense_output():
    task = noiseless(torch.eye(1, dtype=F))
    flow = lp.gradient_flow(
        task, blocks(1), 50, 2.0, parametrisation="block", average=SobolAverage(64), times=[0.5, 1.0], tolerance=1e-6
    )
    assert flow.times.tolist() == [0.0, 0.5, 1.0, 2.0]
    assert flow.dataset.attrs["status"] == "finished"
    assert list(flow.dataset.parameter.values) == ["A[0, 0]", "b"]
    assert_close(flow.theta(1.0), flow.parameters[2])
    assert "length=50" in repr(flow)
    descent = lp.gradient_descent(task, blocks(1), 50, 0.1, 10, parametrisation="block", average=SobolAverage(64))
    assert_close(descent.theta(0.25), (descent.parameters[2] + descent.parameters[3]) / 2)
    with pytest.raises(lp.InvalidArgumentError, match="time: got 3"):
        flow.at(3.0)


def test_flow_stops_on_a_small_gradient_and_on_ctrl_c():
    task = noiseless(torch.eye(1, dtype=F))
    flow = lp.gradient_flow(
        task, blocks(1), math.inf, 1e6, parametrisation="block", average=SobolAverage(64), gradient_tolerance=1e-6
    )
    assert flow.status == "converged"
    assert float(flow.gradient_norm[-1]) < 1e-6

    def stop(time):
        if time > 0.5:
            raise KeyboardInterrupt

    partial = lp.gradient_flow(task, blocks(1), 100, 50.0, parametrisation="block", average=SobolAverage(64), progress=stop)
    assert partial.status == "interrupted"
    assert 0.5 < float(partial.times[-1]) < 50


def test_steps_that_are_too_large_are_reported_and_leave_no_nan():
    task = noiseless(toeplitz(2))
    for length in (100, math.inf):
        run = lp.gradient_descent(task, blocks(2), length, 50.0, 100, parametrisation="block", average=SobolAverage(64))
        assert run.status == "diverged"
        assert "too large" in run.message
        assert bool(torch.isfinite(run.parameters).all() & torch.isfinite(run.risk).all())
    drawn = lp.stochastic_gradient_descent(
        task, blocks(2), 20, 50.0, 30, 16, torch.Generator().manual_seed(0), parametrisation="block", average=SobolAverage(64)
    )
    assert drawn.status == "diverged"
    assert bool(torch.isfinite(drawn.parameters).all() & torch.isfinite(drawn.risk).all())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda t, a: lp.gradient_flow(t, a, 0, 1.0), "length: got 0"),
        (lambda t, a: lp.gradient_flow(t, a, 10, -1.0), "until: got -1"),
        (lambda t, a: lp.gradient_flow(t, a, 10, 1.0, method="Euler"), "method"),
        (lambda t, a: lp.gradient_flow(t, a, 10, 1.0, parametrisation="other"), "parametrisation"),
        (lambda t, a: lp.gradient_flow(t, a, 10, 1.0, times=[2.0]), "times"),
        (lambda t, a: lp.gradient_flow("task", a, 10, 1.0), "task"),
        (
            lambda t, a: lp.gradient_flow(t, lp.SoftmaxAttention(np.eye(2), np.ones((1, 2))), 10, 1.0, parametrisation="block"),
            "outside",
        ),
        (lambda t, a: lp.gradient_descent(t, a, 10, 0.0, 5), "step_size: got 0"),
        (lambda t, a: lp.gradient_descent(t, a, 10, 0.1, 0), "steps: got 0"),
        (lambda t, a: lp.stochastic_gradient_descent(t, a, 10, 0.1, 5, 0, torch.Generator()), "batch_size: got 0"),
        (lambda t, a: lp.stochastic_gradient_descent(t, a, math.inf, 0.1, 5, 2, torch.Generator()), "length"),
        (lambda t, a: lp.stochastic_gradient_descent(t, a, 10, 0.1, 5, 2, None), "generator"),
        (lambda t, a: lp.stochastic_gradient_descent(t, a, 10, 0.1, 5, 2, torch.Generator(), optimizer="Lion"), "optimizer"),
        (lambda t, a: lp.training.Factorised(np.eye(2), np.eye(3), np.eye(2), np.ones((1, 2))), "Q: got shape"),
    ],
)
def test_bad_input(call, words):
    task = lp.LinearRegression([[1.0]], [[1.0]], 0.1)
    with pytest.raises(lp.InvalidArgumentError, match=words):
        call(task, blocks(1))


def test_isotropic_optimum_is_where_the_flow_ends():
    """Softmax: the block flow from the balanced start ends there; a worse point is worse; bad input is refused."""
    task = noiseless(torch.eye(2, dtype=F))
    found = lp.training.isotropic_optimum(task, 30)
    flow = lp.gradient_flow(task, blocks(2), 30, 4000.0, parametrisation="block", tolerance=1e-7, gradient_tolerance=1e-8)
    assert flow.status == "converged"
    assert found.risk == pytest.approx(float(flow.risk[-1]), rel=2e-4)
    assert float(flow.at(float(flow.times[-1])).V[0, 2]) == pytest.approx(found.b, rel=2e-2)
    near = task.isotropic_risk(torch.tensor([found.a * 1.02], dtype=F), torch.tensor([found.b], dtype=F), 30)
    assert float(near) > found.risk
    with pytest.raises(lp.InvalidArgumentError, match="multiples of the identity"):
        lp.training.isotropic_optimum(noiseless(toeplitz(2)), 30)
    with pytest.raises(lp.InvalidArgumentError, match="start"):
        lp.training.isotropic_optimum(task, 30, start=(-1.0, 1.0))
    with pytest.raises(lp.InvalidArgumentError, match="length"):
        lp.training.isotropic_optimum(task, 0)
