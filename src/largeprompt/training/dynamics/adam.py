"""Adam on the exact risk, and the flows that it follows: with its memory as the step size leaves
it, and without.
"""

from typing import Unpack

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import Attention
from largeprompt.devices import sheltered
from largeprompt.errors import InvalidArgumentError
from largeprompt.training.dynamics.descent import Advance, DescentOptions, descend, stepping
from largeprompt.training.dynamics.objective import Objective
from largeprompt.training.dynamics.trajectory import Trajectory
from largeprompt.training.tasks.task import Task

BETAS, EPSILON = (0.9, 0.999), 1e-8  # the defaults of torch.optim.Adam


@sheltered
def adam_descent(
    task: Task,
    attention: Attention,
    length: validation.Lengths,
    step_size: float,
    steps: int,
    *,
    betas: tuple[float, float] = BETAS,
    epsilon: float = EPSILON,
    **options: Unpack[DescentOptions],
) -> Trajectory:
    """torch.optim.Adam on the exact risk.

    Parameters
    ----------
    betas, epsilon
        Those of torch.optim.Adam; all else as for :func:`gradient_descent`.

    Returns
    -------
    Trajectory
        Times are step numbers times the step size.

    Examples
    --------
    >>> task = lp.LinearRegression([[1.0]], [[1.0]], 0.0)
    >>> attention = lp.SoftmaxAttention([[0.3, 0.0], [0.0, 0.0]], [[0.0, 0.3]])
    >>> lp.training.adam_descent(task, attention, 100, 0.01, 200, parametrization="block")
    Trajectory(softmax, length=100, until=2, risk=..., finished)
    """
    betas = checked_betas(betas)
    step_size, epsilon = (
        validation.positive("step_size", step_size),
        validation.positive("epsilon", epsilon),
    )

    def start_from(_: Objective, start: Tensor) -> Advance:
        return stepping(torch.optim.Adam, start, lr=step_size, betas=betas, eps=epsilon)

    return descend("Adam", task, attention, length, step_size, steps, start_from, {}, **options)


def checked_betas(betas: tuple[float, float]) -> tuple[float, float]:
    """Return both betas as numbers between 0 and 1."""
    found = [
        validation.number("betas", beta)
        for beta in validation.listed("betas", betas, "two numbers between 0 and 1")
    ]
    if len(found) != 2 or not all(0 < beta < 1 for beta in found):
        raise InvalidArgumentError("betas", validation.text(betas), "two numbers between 0 and 1")
    return found[0], found[1]
