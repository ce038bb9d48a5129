"""Gradient flow θ' = -∇R_L(θ) on the exact risk, all lengths side by side, with dense output."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, TypedDict

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import Attention
from largeprompt.devices import sheltered
from largeprompt.training.dynamics.integrate import Array, Ending, integrate, report_times
from largeprompt.training.dynamics.objective import Form, make_objective
from largeprompt.training.dynamics.trajectory import Trajectory
from largeprompt.training.risk.average import AVERAGE, SobolAverage
from largeprompt.training.tasks.task import Task

SOLVERS = ("BDF", "Radau", "DOP853", "RK45")
SMALL = 150  # parameters up to which a Hessian is worth its cost
BLOW_UP = 1e6  # times the first risk: a flow cannot do that, so that numbers have gone wrong


class FlowOptions(TypedDict, total=False):
    """What :func:`gradient_flow` takes, for functions that hand it on."""

    parametrization: Form
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
    parametrization: Form = "full",
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
    parametrization
        'full' (U, V), 'block' (A, b), or :class:`Factorized` (K, Q, V, read-out), which brings its
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
        Called with the time reached after every step. When left out, a terminal or notebook shows
        time and rate of a flow that takes more than two seconds; ``lambda time: None`` silences it.

    Returns
    -------
    Trajectory
        Several lengths lead its shapes; the status says how it ended.

    Examples
    --------
    >>> task = lp.LinearRegression([[1.0]], [[1.0]], 0.0)
    >>> attention = lp.SoftmaxAttention([[0.1, 0.0], [0.0, 0.0]], [[0.0, 0.1]])
    >>> flow = lp.gradient_flow(task, attention, math.inf, until=60.0, parametrization="block")
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
        task, attention, length, parametrization, average, tolerance=tolerance
    )
    if method == "auto":
        method = "BDF" if start.shape[-1] <= SMALL else "DOP853"
    first = float(objective.gradient(start)[0].max())
    # risks and gradients of the last evaluation, within the solver's error of its last step
    latest: list[Tensor] = []

    def slope(_: float, flat: Array) -> Array:
        latest[:] = objective.gradient(torch.from_numpy(flat).reshape(start.shape))
        return -latest[1].reshape(-1).numpy()

    def jacobian(_: float, flat: Array) -> Any:  # block diagonal because runs do not interact
        blocks = -objective.hessian(torch.from_numpy(flat).reshape(start.shape)).numpy()
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
