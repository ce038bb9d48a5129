"""Predicted gaps of descent, SGD and Adam against closed forms, other solvers, and the algorithms themselves."""

import math

import numpy as np
import pytest
import scipy.integrate
import torch
from scipy.integrate import solve_ivp
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.training import (
    SobolAverage,
    adam_descent,
    adam_flow,
    descent_gap,
    modified_flow,
    stochastic_ensemble,
    stochastic_gap,
)
from largeprompt.training.dynamics.adam import adam_displacement, mean_lag
from largeprompt.training.dynamics.descent import prompt_factors
from largeprompt.training.gaps.ensemble import gradient_noise
from largeprompt.training.gaps.linearised import linearise
from largeprompt.training.gaps.stochastic import _third
from largeprompt.training.risk.objective import make_objective

F = torch.float64
TASK = lp.LinearRegression([[1.0]], [[1.0]], 0.1)
BLOCK = {"parametrisation": "block", "average": SobolAverage(64)}


def layer(a=0.4, b=0.5, kind=lp.SoftmaxAttention):
    return kind([[a, 0.0], [0.0, 0.0]], [[0.0, b]])


def scalar(y, _=None):
    """d = 1, Σ = W = 1, infinite prompt: R = ½(ab - 1)² + noise; gradient and Hessian by hand."""
    a, b = y
    e = a * b - 1
    return np.array([e * b, e * a]), np.array([[b * b, e + a * b], [e + a * b, a * a]])


def test_first_order_gap_solves_its_equation():
    """δ' = -Hδ - ½H∇R with the gradient and Hessian of the scalar problem written by hand, and another solver."""
    gap = descent_gap(TASK, layer(), math.inf, 6.0, times=[1.0, 3.0, 6.0], **BLOCK)

    def slope(_, y):
        gradient, hessian = scalar(y[:2])
        return np.concatenate([-gradient, -hessian @ y[2:] - hessian @ gradient / 2])

    found = solve_ivp(slope, (0, 6), [0.4, 0.5, 0, 0], "DOP853", t_eval=[0, 1, 3, 6], rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(gap.flow.parameters, found.y[:2].T, atol=1e-7)
    np.testing.assert_allclose(gap.displacement, found.y[2:].T, atol=2e-5)
    np.testing.assert_allclose(gap.hessian[-1], scalar(found.y[:2, -1])[1], atol=1e-7)
    assert gap.stable_step == pytest.approx(2 / np.linalg.eigvalsh(scalar(found.y[:2, -1])[1])[-1], rel=1e-6)
    assert gap.stable_step_on_path <= gap.stable_step
    assert "times the step size" in repr(gap)


@pytest.mark.parametrize("length", [20, math.inf])
def test_descent_is_off_by_the_predicted_amount_and_follows_the_modified_flow(length):
    gap = descent_gap(TASK, layer(), length, 4.0, times=np.linspace(0, 4, 41), **BLOCK)
    ratios, second = [], []
    for eta in (0.1, 0.05):
        run = lp.gradient_descent(TASK, layer(), length, eta, round(4 / eta), record=41, **BLOCK)
        bent = modified_flow(TASK, layer(), length, eta, 4.0, times=run.times.numpy(), tolerance=1e-8, **BLOCK)
        ratios.append(float((run.parameters - gap.flow.parameters).norm(dim=-1).max()) / (eta * gap.supremum))
        second.append(float((run.parameters - bent.parameters).norm(dim=-1).max()))
    assert 2 * ratios[1] - ratios[0] == pytest.approx(1, abs=0.01)
    assert math.log2(second[0] / second[1]) == pytest.approx(2, abs=0.15)
    assert second[0] < 0.3 * 0.1 * gap.supremum


@pytest.mark.parametrize(("run", "solver"), [(modified_flow, "DOP853"), (adam_flow, "Radau")])
def test_a_solver_that_fails_is_not_called_finished(run, solver, monkeypatch):
    steps = []

    def step(self):
        steps.append(self.t)
        return (False, "no such step") if len(steps) > 5 else original(self)

    original = getattr(scipy.integrate, solver)._step_impl
    monkeypatch.setattr(getattr(scipy.integrate, solver), "_step_impl", step)
    arguments = (0.1, 5.0) if run is modified_flow else (5.0,)
    found = run(TASK, layer(), 20, *arguments, **BLOCK)
    assert found.status == "diverged"
    assert "no such step" in found.message
    assert 0 < float(found.times[-1]) < 5
    assert bool(torch.isfinite(found.risk).all())
    with pytest.raises(lp.LargePromptError, match="no such step"):
        found.completed()


def test_adam_with_a_step_that_is_too_large_is_reported():
    run = adam_descent(TASK, layer(), 20, 40.0, 20, **BLOCK)
    assert run.status == "diverged"
    assert "step 1: the step size 40 is too large" in run.message
    assert bool(torch.isfinite(run.parameters).all())


def test_covariance_equation_against_another_solver():
    """P' = -HP - PH + C along the scalar flow with a C that varies; and symmetric, nonnegative."""
    line = linearise(lp.gradient_flow(TASK, layer(), math.inf, 5.0, times=np.linspace(0, 5, 51), **BLOCK), 0.25)
    C = torch.tensor([[2.0, 0.3], [0.3, 1.0]], dtype=F)
    source = (1 + line.nodes)[..., None, None] * C
    P = line.covariance(source)[line.reported]

    def slope(t, y):
        gradient, H = scalar(y[:2])
        M = y[2:].reshape(2, 2)
        return np.concatenate([-gradient, (-H @ M - M @ H + (1 + t) * C.numpy()).ravel()])

    found = solve_ivp(slope, (0, 5), [0.4, 0.5, 0, 0, 0, 0], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(P[-1], found.y[2:, -1].reshape(2, 2), rtol=2e-3)
    assert_close(P, P.mT)
    assert float(torch.linalg.eigvalsh(P).min()) > -1e-12


@pytest.mark.parametrize("kind", [lp.SoftmaxAttention, lp.LinearAttention])
def test_gradients_of_single_prompts_are_those_of_autograd(kind):
    task = lp.LinearRegression(torch.eye(2, dtype=F), torch.eye(2, dtype=F), 0.2)
    generator = torch.Generator().manual_seed(0)
    U, V = (torch.randn(2, *shape, generator=generator, dtype=F) / 3 for shape in ((3, 3), (1, 3)))
    drawn = [task.sample(4, 6, generator) for _ in range(2)]
    tokens, query, answer = (torch.stack(parts) for parts in zip(*drawn, strict=True))
    pull, error, mean = prompt_factors(kind, U, V, tokens, query, answer)
    for run in range(2):
        for i in range(4):
            arguments = [U[run].clone().requires_grad_(), V[run].clone().requires_grad_()]
            loss = (kind(*arguments)(lp.Empirical(tokens[run, i]), query[run, i]) - answer[run, i]).square().sum() / 2
            in_u, in_v = torch.autograd.grad(loss, arguments)
            assert_close(pull[run, i, :, None] * query[run, i], in_u)
            assert_close(error[run, i, :, None] * mean[run, i], in_v)


def test_noise_of_linear_attention_is_orthogonal_to_its_symmetry():
    """Every prompt keeps U -> cU, V -> V/c for linear attention, so that (U, -V) has no noise; softmax breaks it."""
    found = {}
    for kind in (lp.SoftmaxAttention, lp.LinearAttention):
        objective, start, _ = make_objective(TASK, layer(kind=kind), 10, "full", SobolAverage(64))
        noise = gradient_noise(TASK, objective, start[0], 10, 400, torch.Generator().manual_seed(0), groups=2)
        flat = torch.cat([start[0, :4], -start[0, 4:]])
        found[kind] = float(flat @ noise.mean(0) @ flat)
        assert noise.shape == (2, 6, 6)
    assert abs(found[lp.LinearAttention]) < 1e-12
    assert found[lp.SoftmaxAttention] > 1e-3


def test_third_derivative_along_a_covariance():
    """R = ½(ab - 1)²: ∇³R:P by hand."""
    a, b, P = 0.7, 0.9, torch.tensor([[0.5, 0.1], [0.1, 0.3]], dtype=F)
    objective, *_ = make_objective(TASK, layer(), [math.inf] * 5, "block", SobolAverage(64))
    found = _third(objective.gradient, torch.tensor([a, b], dtype=F), P)
    # ∂R/∂a = ab² - b: its Hessian is [[0, 2b], [2b, 2a]]; ∂R/∂b likewise
    by_hand = [2 * 2 * b * P[0, 1] + 2 * a * P[1, 1], 2 * 2 * a * P[0, 1] + 2 * b * P[0, 0]]
    assert_close(found, torch.tensor([float(x) for x in by_hand], dtype=F), rtol=1e-6, atol=1e-9)


def test_ensemble_of_sgd_spreads_as_predicted():
    """Spread within 5 standard errors of the law at small η/B; repeatable; the stationary excess is (η/4B) tr C."""
    law = stochastic_gap(
        TASK,
        layer(),
        5,
        2.0,
        torch.Generator().manual_seed(0),
        times=np.linspace(0, 2, 9),
        prompts=4000,
        average=SobolAverage(1024),
        noise_times=9,
    )
    arguments = (TASK, layer(), 5, 0.02, 100, 64, 200)
    drawn = stochastic_ensemble(*arguments, torch.Generator().manual_seed(1), record=9)
    again = stochastic_ensemble(*arguments, torch.Generator().manual_seed(1), record=9)
    assert torch.equal(drawn.parameters, again.parameters)
    squares = (drawn.parameters[:, -1] - drawn.mean[-1]).square().sum(-1)
    share = 0.02 / 64
    error = math.hypot(float(squares.std()) / math.sqrt(200), share * float(law.spread_error[-1]))
    assert abs(float(drawn.covariance[-1].trace()) - share * float(law.spread[-1])) < 5 * error
    assert abs(float(drawn.covariance[-1].trace()) - 2 * share * float(law.spread[-1])) > 5 * error  # the wrong batch size
    assert law.stationary_excess(0.02, 64) == pytest.approx(share / 4 * float(law.noise[-1].trace()))
    assert float(law.risk_deviation(0.02, 64)[-1]) > 0
    assert_close(law.mean(0.02, math.inf), 0.02 * law.descent.displacement)
    assert "StochasticGap" in repr(law)
    assert "200 runs" in repr(drawn)


def test_sign_flow_keeps_differences_and_ends_on_the_solutions():
    flow = adam_flow(TASK, layer(0.1, 0.5), math.inf, 2.0, **BLOCK)
    a, b = flow.parameters[-1].tolist()
    assert b - a == pytest.approx(0.4, abs=1e-4)
    assert a * b == pytest.approx(1, abs=1e-6)


def test_adam_follows_its_flow_with_memory_at_second_order():
    gaps = []
    for eta in (0.02, 0.01):
        flow = adam_flow(TASK, layer(), 20, 1.0, step_size=eta, epsilon=1e-8, tolerance=1e-8, **BLOCK)
        run = adam_descent(TASK, layer(), 20, eta, round(1 / eta), **BLOCK)
        along = torch.stack([flow.theta(min(1.0, float(time))) for time in run.times])
        gaps.append(float((run.parameters - along).norm(dim=-1).max()))
    assert gaps[1] < 2e-4
    assert math.log2(gaps[0] / gaps[1]) > 1.6


def test_adam_is_the_predicted_distance_from_the_sign_flow():
    """A short memory (β₂ = 0.95) brings the first order within reach of few steps."""
    betas, until = (0.9, 0.95), 0.2
    sign = adam_flow(TASK, layer(), math.inf, until, epsilon=1e-8, **BLOCK)
    objective, *_ = make_objective(TASK, layer(), math.inf, "block", SobolAverage(64))
    gradients = torch.cat([objective.gradient(theta.unsqueeze(0))[1] for theta in sign.parameters])
    ratios = []
    for eta in (4e-4, 2e-4):
        run = adam_descent(TASK, layer(), math.inf, eta, round(until / eta), betas=betas, **BLOCK)
        predicted = adam_displacement(sign, gradients, eta, betas)[-1]
        ratios.append(float((run.parameters[-1] - sign.parameters[-1]).norm() / predicted.norm()))
    assert 2 * ratios[1] - ratios[0] == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("beta", [0.9, 0.999])
def test_mean_lag_is_the_mean_age(beta):
    for steps in (1, 2, 50, 20_000):
        ages = torch.arange(steps, dtype=F)
        weights = beta**ages
        assert float(mean_lag(beta, torch.tensor(float(steps), dtype=F))) == pytest.approx(
            float((weights * ages).sum() / weights.sum()), rel=1e-6, abs=1e-9
        )


def test_defaults_are_those_of_one_optimiser():
    """Where the gradient vanishes ε matters: the flow with memory has Adam's own unless another is given."""
    start, options = layer(), {"step_size": 0.01, "times": [0.0, 0.5], **BLOCK}
    given, left, wide = (
        adam_flow(TASK, start, 20, 0.5, **options | extra).parameters[-1] for extra in ({"epsilon": 1e-8}, {}, {"epsilon": 1e-3})
    )
    assert torch.equal(given, left)
    assert not torch.equal(left, wide)
    assert adam_flow(TASK, start, 20, 0.1, **BLOCK).config["epsilon"] == 1e-6


GENERATOR = torch.Generator()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: descent_gap(TASK, layer(), 0, 1.0), "length: got 0"),
        (lambda: descent_gap(TASK, layer(), 10, -1.0), "until: got -1"),
        (lambda: descent_gap(TASK, layer(), 10, 1.0, resolution=0.0), "resolution"),
        (lambda: modified_flow(TASK, layer(), 10, 0.0, 1.0), "step_size: got 0"),
        (lambda: stochastic_gap(TASK, layer(), math.inf, 1.0, GENERATOR), "length"),
        (lambda: stochastic_gap(TASK, layer(), 10, 1.0, None), "generator"),
        (lambda: stochastic_gap(TASK, layer(), 10, 1.0, GENERATOR, groups=1), "groups"),
        (lambda: stochastic_ensemble(TASK, layer(), 10, 0.1, 5, 2, 1, GENERATOR), "replicas"),
        (lambda: stochastic_ensemble(TASK, layer(), 10, 0.1, 5, 0, 2, GENERATOR), "batch_size"),
        (lambda: adam_descent(TASK, layer(), 10, 0.1, 5, betas=(0.9, 1.0)), "betas"),
        (lambda: adam_descent(TASK, layer(), 10, -0.1, 5), "step_size"),
        (lambda: adam_flow(TASK, layer(), 10, 1.0, step_size=0.0), "step_size"),
        (lambda: adam_flow(TASK, layer(), 10, 1.0, epsilon=0.0), "epsilon"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(lp.InvalidArgumentError, match=words):
        call()
