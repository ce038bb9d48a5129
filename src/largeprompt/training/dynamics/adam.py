"""Adam on the exact risk, and the flows that it follows: with its memory as the step size leaves it, and without."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import Attention
from largeprompt.errors import InvalidArgumentError
from largeprompt.training.dynamics.flow import Array, _report_times, build
from largeprompt.training.dynamics.parameters import Parametrisation
from largeprompt.training.dynamics.trajectory import Trajectory
from largeprompt.training.risk.exact import RiskError
from largeprompt.training.risk.objective import Kind, Objective, make_objective
from largeprompt.training.tasks.task import Task

BETAS, EPSILON = (0.9, 0.999), 1e-8  # the defaults of torch.optim.Adam
SMOOTHING = 1e-6  # ε of the sign flow, which is stiff below
TINY = 1e-6  # gradients below this need not be told apart
LARGEST_STEP = 0.05  # of the sign flow, so that its solver does not leap over a change of sign


def adam_descent(
    task: Task,
    attention: Attention,
    length: Any,
    step_size: float,
    steps: int,
    *,
    betas: tuple[float, float] = BETAS,
    epsilon: float = EPSILON,
    parametrisation: Kind | Parametrisation = "full",
    record: int = 201,
    points: int = 4096,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Trajectory:
    """torch.optim.Adam on the exact risk, all lengths side by side; times are step numbers times the step size."""
    step_size, steps = validation.positive("step_size", step_size), validation.integer("steps", steps)
    record = validation.integer("record", record, minimum=2)
    _check_betas(betas)
    objective, start, several = make_objective(task, attention, length, parametrisation, points, seed)
    theta = start.clone().requires_grad_()
    stepper = torch.optim.Adam([theta], lr=step_size, betas=betas, eps=validation.positive("epsilon", epsilon))
    wanted, path = sorted({round(i * steps / (record - 1)) for i in range(record)}), [start]
    for step in range(1, steps + 1):
        theta.grad = objective.gradient(theta)[1]
        stepper.step()
        if step in wanted:
            path.append(theta.detach().clone())
        if progress is not None:
            progress(step)
    if not bool(torch.isfinite(theta).all()):
        raise RiskError(f"Adam: parameters that are not finite after {steps} steps of {step_size:g}. Use a smaller step size.")
    config = {"dynamics": "Adam", "task": repr(task), "step_size": step_size, "steps": steps, "points": points, "seed": seed}
    times = step_size * torch.tensor(wanted, dtype=torch.float64)
    return build(objective, times, torch.stack(path), several, "finished", f"{steps} steps of {step_size:g}", config, None)


def _check_betas(betas: tuple[float, float]) -> None:
    if len(betas) != 2 or not all(0 < beta < 1 for beta in betas):
        raise InvalidArgumentError("betas", str(betas), "two numbers between 0 and 1")


def adam_flow(
    task: Task,
    attention: Attention,
    length: float,
    until: float,
    *,
    step_size: float | None = None,
    betas: tuple[float, float] = BETAS,
    epsilon: float | None = None,
    parametrisation: Kind | Parametrisation = "full",
    times: Any = None,
    tolerance: float = 1e-7,
    points: int = 4096,
    seed: int = 0,
) -> Trajectory:
    """The flow that Adam follows, with time counted as steps times step size.

    As the step size η tends to 0 with β fixed, both averages forget at once: θ' = -∇R/(abs(∇R) + ε), entry by entry, the sign flow.
    At a given η the averages are those of the last τ = -η/log β of time: θ' = -m/(√v + ε), m' = (∇R - m)/(τ₁(1 - e^{-s/τ₁})),
    v' = (∇R² - v)/(τ₂(1 - e^{-s/τ₂})), m and v after Adam's bias correction. With s = t + η/2 the mean age of what they remember is
    Adam's own at every step.

    Parameters
    ----------
    step_size
        η of the flow with memory; None for the sign flow.
    epsilon
        ε; Adam's own 1e-8 where a step size is given, 1e-6 for the sign flow, which it smooths where an entry of the gradient
        stays at 0 while others move (it slides along ∂R = 0): the end point moves by some ten times ε.

    Examples
    --------
    >>> from largeprompt.training import adam_flow
    >>> task = lp.LinearRegression([[1.0]], [[1.0]], 0.0)
    >>> attention = lp.SoftmaxAttention([[0.1, 0.0], [0.0, 0.0]], [[0.0, 0.5]])
    >>> flow = adam_flow(task, attention, math.inf, until=2.0, parametrisation="block")
    >>> end = flow.parameters[-1]  # entries move alike, so that their difference stays, until ab = 1
    >>> print(f"{float(end[1] - end[0]):.4f} {float(end[0] * end[1]):.4f}")
    0.4000 1.0000
    """
    from scipy.integrate import BDF, Radau, solve_ivp

    if epsilon is None:
        epsilon = SMOOTHING if step_size is None else EPSILON
    until, epsilon = validation.positive("until", until), validation.positive("epsilon", epsilon)
    tolerance = validation.positive("tolerance", tolerance)
    length = validation.length("length", length, allow_infinity=True)
    _check_betas(betas)
    objective, start, _ = make_objective(task, attention, length, parametrisation, points, seed)
    kept, p = _report_times(times, until), start.shape[-1]
    options: dict[str, Any] = {"rtol": tolerance, "atol": tolerance / 100, "dense_output": True}
    solver: Any  # a class of SciPy's
    if step_size is None:
        slope, jacobian = _sign_system(objective, epsilon)
        state, solver = start[0].numpy(), Radau
        options["max_step"] = LARGEST_STEP
    else:
        slope, jacobian = _memory_system(objective, validation.positive("step_size", step_size), betas, epsilon)
        gradient = objective.gradient(start)[1][0]
        state, solver = torch.cat([start[0], gradient, gradient.abs() + TINY]).numpy(), BDF
        options["atol"] = np.repeat([tolerance / 100, tolerance * TINY, tolerance * TINY], p)
    found: Any = solve_ivp(slope, (0.0, until), state, solver, **options, jac=jacobian)
    if not found.success:
        raise RiskError(f"adam_flow: the solver stopped at time {found.t[-1]:g}: {found.message}")

    def interpolate(time: Any) -> Array:
        value: Array = found.sol(time)[:p]
        return value

    path = torch.from_numpy(interpolate(kept).T.copy()).reshape(len(kept), 1, p)
    config = {
        "dynamics": "sign flow" if step_size is None else "Adam's flow",
        "task": repr(task),
        "step_size": step_size,
        "betas": list(betas),
        "epsilon": epsilon,
        "points": points,
        "seed": seed,
    }
    return build(objective, torch.from_numpy(kept), path, False, "finished", f"reached time {until:g}", config, interpolate)


System = tuple[Callable[[float, Array], Array], Callable[[float, Array], Array]]  # right-hand side and Jacobian


def _sign_system(objective: Objective, epsilon: float) -> System:
    def slope(_: float, flat: Array) -> Array:
        gradient = objective.gradient(torch.from_numpy(flat).unsqueeze(0))[1][0].numpy()
        value: Array = -gradient / (np.abs(gradient) + epsilon)
        return value

    def jacobian(_: float, flat: Array) -> Array:
        theta = torch.from_numpy(flat).unsqueeze(0)
        gradient, hessian = objective.gradient(theta)[1][0].numpy(), objective.hessian(theta)[0].numpy()
        value: Array = -(epsilon / (np.abs(gradient) + epsilon) ** 2)[:, None] * hessian
        return value

    return slope, jacobian


def _memory_system(objective: Objective, step_size: float, betas: tuple[float, float], epsilon: float) -> System:
    """In θ, m and r = √v, which is followed to a share of itself down to where no gradient is left."""

    def rates(time: float) -> tuple[float, float]:
        memory = (step_size * (1 + beta) / (2 * (1 - beta)) for beta in betas)
        first, second = (-1 / (tau * math.expm1(-(time + step_size / 2) / tau)) for tau in memory)
        return first, second

    def slope(time: float, flat: Array) -> Array:
        theta, m, r = np.split(flat, 3)
        gradient = objective.gradient(torch.from_numpy(theta).unsqueeze(0))[1][0].numpy()
        first, second = rates(time)
        return np.concatenate([-m / (r + epsilon), first * (gradient - m), second * (gradient**2 / r - r) / 2])

    def jacobian(time: float, flat: Array) -> Array:
        theta, m, r = np.split(flat, 3)
        point = torch.from_numpy(theta).unsqueeze(0)
        gradient, hessian = objective.gradient(point)[1][0].numpy(), objective.hessian(point)[0].numpy()
        first, second = rates(time)
        zero, eye = np.zeros_like(hessian), np.eye(len(theta))
        return np.block(
            [
                [zero, -np.diag(1 / (r + epsilon)), np.diag(m / (r + epsilon) ** 2)],
                [first * hessian, -first * eye, zero],
                [second * (gradient / r)[:, None] * hessian, zero, -second / 2 * np.diag((gradient / r) ** 2 + 1)],
            ]
        )

    return slope, jacobian


def mean_lag(beta: float, steps: Tensor) -> Tensor:
    """Mean age, in steps, of what a bias-corrected average of weights β^j remembers after so many steps: tends to β/(1-β)."""
    power = torch.exp(steps * math.log(beta))
    return torch.where(steps > 0, beta / (1 - beta) - steps * power / (1 - power).clamp_min(1e-300), torch.zeros_like(steps))


def adam_displacement(flow: Trajectory, gradients: Tensor, step_size: float, betas: tuple[float, float] = BETAS) -> Tensor:
    """Adam less the sign flow, to first order in the step size, shape (time, p); NaN from the first change of a gradient's sign on.

    m lags n₁ steps behind the gradient and √v lags n₂, so that m/√v = sign(g)(1 + η(n₂ - n₁) g'/g): the entry gains
    -sign(g) η ∫ (n₂ - n₁) d log|g|, which is -sign(g) η (β₂/(1-β₂) - β₁/(1-β₁)) log|g(t)/g(0)| after the first 1/(1-β₂) steps.

    Parameters
    ----------
    flow
        A sign flow of one length, on times close enough to sum over.
    gradients
        ∇R along it, shape (time, p).
    """
    _check_betas(betas)
    middle = (flow.times[:-1] + flow.times[1:]) / (2 * step_size)
    lag = mean_lag(betas[1], middle) - mean_lag(betas[0], middle)
    sign = torch.sign(gradients[0])
    change = -sign * step_size * lag.unsqueeze(-1) * gradients.abs().log().diff(dim=0)
    moved = torch.cat([torch.zeros_like(gradients[:1]), change.cumsum(0)])
    same = (torch.sign(gradients) == sign).all(-1).long().cumprod(0).bool()
    return torch.where(same.unsqueeze(-1), moved, torch.full_like(moved, math.nan))
