"""The flows that Adam follows on the exact risk: with its memory as the step size leaves it, and
without.
"""

import dataclasses
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import Attention
from largeprompt.devices import sheltered
from largeprompt.training.dynamics.adam import BETAS, EPSILON, checked_betas
from largeprompt.training.dynamics.integrate import Array, Slope, integrate, report_times
from largeprompt.training.dynamics.trajectory import Trajectory
from largeprompt.training.risk.average import AVERAGE, SobolAverage
from largeprompt.training.risk.objective import Form, Objective, make_objective
from largeprompt.training.tasks.task import Task

SMOOTHING = 1e-6  # ε of the sign flow, which is stiff below
TINY = 1e-6  # gradients below this need not be distinguished
LARGEST_STEP = 0.05  # of the sign flow, so that its solver does not leap over a change of sign


@sheltered
def adam_flow(
    task: Task,
    attention: Attention,
    length: float,
    until: float,
    *,
    step_size: float | None = None,
    betas: tuple[float, float] = BETAS,
    epsilon: float | None = None,
    parametrisation: Form = "full",
    times: Any = None,
    tolerance: float = 1e-7,
    average: SobolAverage = AVERAGE,
) -> Trajectory:
    """The flow that Adam follows, with time counted as steps times step size.

    As the step size η tends to 0 with β fixed, both averages forget at once: θ' = -∇R/(abs(∇R) +
    ε), entry by entry, the sign flow. At a given η they keep a memory of τ = η(1 + β)/(2(1 - β)):
    formulas (dyn.16-17) of docs/mathematics/dynamics.md.

    Parameters
    ----------
    step_size
        η of the flow with memory; None for the sign flow.
    epsilon
        ε; Adam's own 1e-8 where a step size is given, 1e-6 for the sign flow, which it smooths
        where an entry of the gradient stays at 0 while others move (it slides along ∂R = 0): the
        end point moves by some ten times ε.

    Returns
    -------
    Trajectory
        Of θ alone, without the averages.

    Examples
    --------
    >>> from largeprompt.studies.discrete.adam_flow import adam_flow
    >>> task = lp.LinearRegression([[1.0]], [[1.0]], 0.0)
    >>> attention = lp.SoftmaxAttention([[0.1, 0.0], [0.0, 0.0]], [[0.0, 0.5]])
    >>> flow = adam_flow(task, attention, math.inf, until=2.0, parametrisation="block")
    >>> end = flow.parameters[-1]  # entries move alike, so that their difference stays, until ab = 1
    >>> print(f"{float(end[1] - end[0]):.4f} {float(end[0] * end[1]):.4f}")
    0.4000 1.0000
    """
    if epsilon is None:
        epsilon = SMOOTHING if step_size is None else EPSILON
    until, epsilon = validation.positive("until", until), validation.positive("epsilon", epsilon)
    tolerance = validation.positive("tolerance", tolerance)
    length = validation.length("length", length, allow_infinity=True)
    betas = checked_betas(betas)
    objective, start, _ = make_objective(task, attention, length, parametrisation, average)
    p = start.shape[-1]
    options: dict[str, Any] = {"rtol": tolerance, "atol": tolerance / 100}
    if step_size is None:
        slope, jacobian = _sign_system(objective, epsilon)
        state = start[0].numpy()
        options |= {"method": "Radau", "max_step": LARGEST_STEP}
    else:
        slope, jacobian = _memory_system(
            objective, validation.positive("step_size", step_size), betas, epsilon
        )
        gradient = objective.gradient(start)[1][0]
        state = torch.cat([start[0], gradient, gradient.abs() + TINY]).numpy()
        options |= {
            "method": "BDF",
            "atol": np.repeat([tolerance / 100, tolerance * TINY, tolerance * TINY], p),
        }
    found = integrate(slope, state, until, report_times(times, until), jac=jacobian, **options)
    moved = dataclasses.replace(
        found, states=found.states[:, :p], at=lambda time: found.at(time)[:p]
    )
    config: dict[str, Any] = {
        "dynamics": "sign flow" if step_size is None else "Adam's flow",
        "task": repr(task),
        "step_size": step_size,
    }
    config |= {"betas": list(betas), "epsilon": epsilon, **dataclasses.asdict(average)}
    return Trajectory.of_flow(objective, moved, False, config)


System = tuple[Slope, Slope]  # right-hand side and Jacobian


def _gradient(objective: Objective, theta: Array) -> Array:
    return objective.gradient(torch.from_numpy(theta).unsqueeze(0))[1][0].numpy()


def _hessian(objective: Objective, theta: Array) -> Array:
    return objective.hessian(torch.from_numpy(theta).unsqueeze(0))[0].numpy()


def _sign_system(objective: Objective, epsilon: float) -> System:
    def slope(_: float, theta: Array) -> Array:
        gradient = _gradient(objective, theta)
        return np.asarray(-gradient / (np.abs(gradient) + epsilon))

    def jacobian(_: float, theta: Array) -> Array:
        scale = epsilon / (np.abs(_gradient(objective, theta)) + epsilon) ** 2
        return -scale[:, None] * _hessian(objective, theta)

    return slope, jacobian


def _memory_system(
    objective: Objective, step_size: float, betas: tuple[float, float], epsilon: float
) -> System:
    """In θ, m and r = √v, which is followed to a share of itself down to where no
    gradient is left.
    """

    def rates(time: float) -> tuple[float, float]:
        memory = (step_size * (1 + beta) / (2 * (1 - beta)) for beta in betas)
        first, second = (-1 / (tau * math.expm1(-(time + step_size / 2) / tau)) for tau in memory)
        return first, second

    def slope(time: float, flat: Array) -> Array:
        theta, m, r = np.split(flat, 3)
        gradient, (first, second) = _gradient(objective, theta), rates(time)
        return np.concatenate(
            [-m / (r + epsilon), first * (gradient - m), second * (gradient**2 / r - r) / 2]
        )

    def jacobian(time: float, flat: Array) -> Array:
        theta, m, r = np.split(flat, 3)
        gradient, hessian, (first, second) = (
            _gradient(objective, theta),
            _hessian(objective, theta),
            rates(time),
        )
        zero, eye = np.zeros_like(hessian), np.eye(len(theta))
        return np.block(
            [
                [zero, -np.diag(1 / (r + epsilon)), np.diag(m / (r + epsilon) ** 2)],
                [first * hessian, -first * eye, zero],
                [
                    second * (gradient / r)[:, None] * hessian,
                    zero,
                    -second / 2 * np.diag((gradient / r) ** 2 + 1),
                ],
            ]
        )

    return slope, jacobian


def mean_lag(beta: float, steps: Tensor) -> Tensor:
    """Mean age, in steps, of what a bias-corrected average remembers after so many steps: tends to
    (dyn.14).
    """
    power = torch.exp(steps * math.log(beta))
    return torch.where(
        steps > 0,
        beta / (1 - beta) - steps * power / (1 - power).clamp_min(1e-300),
        torch.zeros_like(steps),
    )


def adam_displacement(
    flow: Trajectory, gradients: Tensor, step_size: float, betas: tuple[float, float] = BETAS
) -> Tensor:
    """Adam less the sign flow, to first order in the step size, shape (time, p); NaN from the first
    change of a gradient's sign on.

    Formula (dyn.15) of docs/mathematics/dynamics.md, with the shorter memory of the first 1/(1-β₂)
    steps.

    Parameters
    ----------
    flow
        A sign flow of one length, on times close enough to sum over.
    gradients
        ∇R along it, shape (time, p).
    """
    betas = checked_betas(betas)
    middle = (flow.times[:-1] + flow.times[1:]) / (2 * step_size)
    lag = mean_lag(betas[1], middle) - mean_lag(betas[0], middle)
    sign = torch.sign(gradients[0])
    change = -sign * step_size * lag.unsqueeze(-1) * gradients.abs().log().diff(dim=0)
    moved = torch.cat([torch.zeros_like(gradients[:1]), change.cumsum(0)])
    same = (torch.sign(gradients) == sign).all(-1).long().cumprod(0).bool()
    return torch.where(same.unsqueeze(-1), moved, torch.full_like(moved, math.nan))
