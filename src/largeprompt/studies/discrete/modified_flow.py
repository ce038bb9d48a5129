"""The flow that gradient descent of a step size follows."""

import dataclasses
from typing import Any

import torch

from largeprompt import validation
from largeprompt.attention import Attention
from largeprompt.training.dynamics.integrate import Array, integrate, report_times
from largeprompt.training.dynamics.trajectory import Trajectory
from largeprompt.training.risk.average import AVERAGE, SobolAverage
from largeprompt.training.risk.objective import Form, make_objective
from largeprompt.training.tasks.task import Task


def modified_flow(
    task: Task,
    attention: Attention,
    length: validation.Lengths,
    step_size: float,
    until: float,
    *,
    parametrisation: Form = "full",
    times: Any = None,
    tolerance: float = 1e-10,
    average: SobolAverage = AVERAGE,
) -> Trajectory:
    """Flow of R + (η/4)‖∇R‖², θ' = -∇R - (η/2)H∇R, which gradient descent of step size η follows up
    to O(η²).

    Parameters
    ----------
    step_size
        η; all else as for :func:`gradient_flow`.

    Returns
    -------
    Trajectory
        Risks and gradient norms are those of R.

    Examples
    --------
    >>> from largeprompt.studies.discrete.modified_flow import modified_flow
    >>> task = lp.LinearRegression([[1.0]], [[1.0]], 0.0)
    >>> attention = lp.SoftmaxAttention([[0.3, 0.0], [0.0, 0.0]], [[0.0, 0.3]])
    >>> bent = modified_flow(task, attention, math.inf, 0.1, 5.0, parametrisation="block")
    >>> descent = lp.gradient_descent(task, attention, math.inf, 0.1, 50, parametrisation="block")
    >>> print(f"{float((bent.theta(5.0) - descent.theta(5.0)).norm()):.0e}")
    1e-05
    """
    step_size, until = (
        validation.positive("step_size", step_size),
        validation.positive("until", until),
    )
    tolerance = validation.positive("tolerance", tolerance)
    objective, start, several = make_objective(task, attention, length, parametrisation, average)

    def slope(_: float, flat: Array) -> Array:
        theta = torch.from_numpy(flat).reshape(start.shape)
        gradient = objective.gradient(theta)[1].unsqueeze(-1)
        moved = gradient + step_size / 2 * (objective.hessian(theta) @ gradient)
        return -moved.reshape(-1).numpy()

    found = integrate(
        slope,
        start.reshape(-1).numpy(),
        until,
        report_times(times, until),
        rtol=tolerance,
        atol=tolerance / 1000,
    )
    config = {
        "dynamics": "modified flow",
        "task": repr(task),
        "step_size": step_size,
        **dataclasses.asdict(average),
    }
    return Trajectory.of_flow(objective, found, several, config)
