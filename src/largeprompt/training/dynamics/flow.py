"""Gradient flow θ' = -∇R_L(θ) on the exact risk, all lengths side by side, with dense output."""

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any, Literal, TypedDict

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import Attention
from largeprompt.devices import sheltered
from largeprompt.errors import InvalidArgumentError
from largeprompt.training.dynamics.integrate import (
    Array,
    Ending,
    FixedStep,
    Solution,
    integrate,
    report_times,
)
from largeprompt.training.dynamics.trajectory import Trajectory
from largeprompt.training.risk.average import AVERAGE, SobolAverage
from largeprompt.training.risk.objective import Form, make_objective
from largeprompt.training.tasks.task import Task

SOLVERS = ("BDF", "Radau", "DOP853", "RK45")
SMALL = 150  # parameters up to which a Hessian is worth its cost
# gradients: a solver that wants Hessians more often than that gets exact ones, since slow ends of
# flows need them
PATIENCE = 40
BLOW_UP = 1e6  # times the first risk: a flow cannot do that, so that numbers have gone wrong


class FlowOptions(TypedDict, total=False):
    """What :func:`gradient_flow` takes, for functions that hand it on."""

    parametrisation: Form
    times: Any
    tolerance: float
    average: SobolAverage
    progress: Callable[[float], None] | None


@sheltered
def gradient_flow(
    task: Task,
    attention: Attention,
    length: validation.Lengths,
    until: float,
    *,
    parametrisation: Form = "full",
    times: Any = None,
    gradient_tolerance: float = 0.0,
    method: Literal["auto", "BDF", "Radau", "DOP853", "RK45"] = "auto",
    tolerance: float = 1e-9,
    average: SobolAverage = AVERAGE,
    progress: Callable[[float], None] | None = None,
) -> Trajectory:
    """Integrate the gradient flow of the exact population risk. No prompt is drawn.

    Parameters
    ----------
    task, attention
        The task and the layer at time 0; softmax or linear attention.
    length
        One prompt length, or several: their flows are integrated side by side in one system.
    until
        Last time.
    parametrisation
        'full' (U, V), 'block' (A, b), or :class:`Factorised` (K, Q, V, read-out), which brings its
        own start.
    times
        Times to report; 201 equally spaced ones when left out. Between them the dense output
        answers.
    gradient_tolerance
        Stop when the largest gradient norm of all runs falls below this.
    method
        'auto' takes BDF with the Hessian for few parameters (stiffness costs nothing then), DOP853
        for many.
    tolerance
        Relative error of a step; the absolute one is a thousandth of it. Gradients of layers that
        are not in blocks are good to 2e-7 at best, whatever it is.
    average
        Sobol points over contexts, common to all times and lengths, for tasks that need them.
    progress
        Called with the time reached after every step.

    Returns
    -------
    Trajectory
        Several lengths lead its shapes; the status says how it ended.

    Examples
    --------
    >>> task = lp.LinearRegression([[1.0]], [[1.0]], 0.0)
    >>> attention = lp.SoftmaxAttention([[0.1, 0.0], [0.0, 0.0]], [[0.0, 0.1]])
    >>> flow = lp.gradient_flow(task, attention, math.inf, until=60.0, parametrisation="block")
    >>> flow
    Trajectory(softmax, length=inf, until=60, risk=..., finished)
    >>> flow.at(60.0).V.round(decimals=6)  # tr(Σ^{-2})^{1/4} = 1
    tensor([[0., 1.]], dtype=torch.float64)
    """
    from scipy.sparse import block_diag

    until = validation.positive("until", until)
    tolerance = validation.positive("tolerance", tolerance)
    gradient_tolerance = validation.number("gradient_tolerance", gradient_tolerance, minimum=0)
    validation.choice("method", method, ("auto", *SOLVERS))
    objective, start, several = make_objective(
        task, attention, length, parametrisation, average, tolerance=tolerance
    )
    if method == "auto":
        method = "BDF" if start.shape[-1] <= SMALL else "DOP853"
    first = float(objective.gradient(start)[0].max())
    # risks and gradients of the last evaluation, within the solver's error of those of its last
    # step
    latest: list[Tensor] = []
    evaluations = itertools.count()
    asked = [-math.inf]  # at which evaluations the solver wanted a Hessian

    def slope(_: float, flat: Array) -> Array:
        next(evaluations)
        latest[:] = objective.gradient(torch.from_numpy(flat).reshape(start.shape))
        return -latest[1].reshape(-1).numpy()

    def jacobian(_: float, flat: Array) -> Any:  # block diagonal because runs do not interact
        asked.append(next(evaluations))
        often = min(after - before for before, after in itertools.pairwise(asked)) < PATIENCE
        blocks = -(objective.hessian if often else objective.stiffness)(
            torch.from_numpy(flat).reshape(start.shape)
        ).numpy()
        return blocks[0] if len(blocks) == 1 else block_diag(list(blocks), format="csc")

    def ending(time: float) -> Ending | None:
        risks, gradient = latest
        if not bool(torch.isfinite(risks).all()) or float(risks.max()) > BLOW_UP * max(first, 1.0):
            return "diverged", f"the risk is {float(risks.max()):.3g} at time {time:g}"
        if float(gradient.norm(dim=-1).max()) < gradient_tolerance:
            return "converged", f"gradient norm below {gradient_tolerance:g} at time {time:g}"
        return None

    options: dict[str, Any] = {"rtol": tolerance, "atol": tolerance / 1000}
    if method in ("BDF", "Radau"):
        options["jac"] = jacobian
    options |= {"method": method, "ending": ending, "progress": progress}
    found = integrate(
        slope, start.reshape(-1).numpy(), until, report_times(times, until), **options
    )
    config = {
        "dynamics": "gradient flow",
        "task": repr(task),
        "method": method,
        "tolerance": tolerance,
    }
    config |= {**dataclasses.asdict(average), "until": until}
    return Trajectory.of_flow(objective, found, several, config)


def fixed_step_flow(
    risk: Callable[[Tensor], Tensor], start: Tensor, until: float, steps: int
) -> Solution:
    """Gradient flow θ' = -∇R of several runs by the classical Runge-Kutta rule.

    The same steps for every risk, so that flows on different risks can be compared without the
    solver's choices between them.

    Parameters
    ----------
    risk
        From θ (run, p) to the risks (run,), differentiable.
    start
        θ at time 0, shape (run, p).
    until
        Last time.
    steps
        How many equal steps are taken.

    Returns
    -------
    Solution
        With states of shape (steps + 1, run, p), fewer where it was interrupted or diverged.

    Examples
    --------
    >>> flow = lp.training.fixed_step_flow(lambda theta: theta.square().sum(-1) / 2, torch.ones(1, 1, dtype=torch.float64), 1.0, 10)
    >>> print(f"{flow.status}: {flow.states[-1, 0, 0]:.5f} {math.exp(-1):.5f}")
    finished: 0.36788 0.36788
    """
    until, steps = validation.positive("until", until), validation.integer("steps", steps)
    start = validation.shaped("start", start, ("run", "p"), batch=False)
    if not callable(risk):
        raise InvalidArgumentError(
            "risk", validation.text(risk), "a function of θ (run, p) that gives the risks (run,)"
        )
    validation.affordable("steps", steps, needed=16.0 * steps * start.numel(), seconds=1e-5 * steps)

    def slope(_: float, flat: Array) -> Array:
        with torch.enable_grad():
            point = torch.from_numpy(flat).reshape(start.shape).to(start.device).requires_grad_()
            (gradient,) = torch.autograd.grad(risk(point).sum(), point)
        return -gradient.reshape(-1).cpu().numpy()

    times = np.append(until / steps * np.arange(steps), until)
    found = integrate(
        slope, start.detach().reshape(-1).cpu().numpy(), until, times, method=FixedStep, steps=steps
    )
    shape = tuple(start.shape)
    states = found.states.reshape(-1, *shape)
    return dataclasses.replace(
        found, states=states, at=lambda time: found.at(time).reshape(*shape, *np.shape(time))
    )
