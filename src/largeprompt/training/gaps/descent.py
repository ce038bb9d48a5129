"""How far gradient descent is from the gradient flow: the gap to first order in the step size, and
the flow that it follows.
"""

import dataclasses
from typing import Unpack

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import Attention
from largeprompt.devices import sheltered
from largeprompt.training.dynamics.flow import FlowOptions, gradient_flow
from largeprompt.training.dynamics.trajectory import Trajectory
from largeprompt.training.gaps.linearized import LinearizedFlow, linearize
from largeprompt.training.tasks.task import Task


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class DescentGap:
    """θ_η(t) - θ(t) = η δ(t) + O(η²): gradient descent of step size η against the flow, at t = η
    times the number of steps.

    Attributes
    ----------
    times
        Shape (time,).
    flow
        The gradient flow.
    displacement
        δ, shape (time, p).
    hessian
        H along the flow, shape (time, p, p).
    """

    times: Tensor
    flow: Trajectory
    displacement: Tensor
    hessian: Tensor

    @property
    def sharpness(self) -> Tensor:
        """Largest eigenvalue of the Hessian along the flow, shape (time,)."""
        values: Tensor = torch.linalg.eigvalsh(self.hessian)
        return values[:, -1]

    @property
    def supremum(self) -> float:
        """sup over t of ‖δ(t)‖: the largest gap is this times the step size, to first order."""
        return float(self.displacement.norm(dim=-1).max())

    @property
    def stable_step(self) -> float:
        """2/λ_max at the last time: if training has ended there, descent with a larger step size
        leaves the end point.
        """
        return 2 / float(self.sharpness[-1])

    @property
    def stable_step_on_path(self) -> float:
        """2/max λ_max over the path: descent with a smaller step size follows
        the flow everywhere.
        """
        return 2 / float(self.sharpness.max())

    def __repr__(self) -> str:
        return (
            f"DescentGap(until={float(self.times[-1]):g}, supremum={self.supremum:.4g} times the "
            f"step size, stable_step={self.stable_step:.4g})"
        )


@sheltered
def descent_gap(
    task: Task,
    attention: Attention,
    length: float,
    until: float,
    *,
    resolution: float = 0.25,
    **options: Unpack[FlowOptions],
) -> DescentGap:
    """The gap between gradient descent and gradient flow to first order in the step size, without a
    step of descent.

    Backward error analysis: formulas (dyn.9-10) of docs/mathematics/dynamics.md.

    Parameters
    ----------
    length
        One length, or ``math.inf``.
    resolution
        The largest product of a time step with an eigenvalue of the Hessian; the error is of fourth
        order in it.
    options
        ``parametrization``, ``times``, ``tolerance``, ``average`` and ``progress`` as for
        :func:`gradient_flow`.

    Returns
    -------
    DescentGap
        With the flow itself.

    Examples
    --------
    >>> task = lp.LinearRegression([[1.0]], [[1.0]], 0.0)
    >>> attention = lp.SoftmaxAttention([[0.3, 0.0], [0.0, 0.0]], [[0.0, 0.3]])
    >>> block = {"parametrization": "block"}
    >>> gap = lp.training.descent_gap(task, attention, math.inf, until=10.0, **block)
    >>> gap
    DescentGap(until=10, supremum=0.09347 times the step size, stable_step=1)
    >>> descent = lp.gradient_descent(task, attention, math.inf, 0.01, 1000, **block)
    >>> measured = (descent.parameters - gap.flow.parameters).norm(dim=-1).max() / 0.01
    >>> print(f"{float(measured):.4f}")
    0.0937
    """
    length = validation.length("length", length, allow_infinity=True)
    return gap_of(
        linearize(gradient_flow(task, attention, length, until, **options).completed(), resolution)
    )


def gap_of(line: LinearizedFlow) -> DescentGap:
    """The same of a flow that is linearized already."""
    forcing = -(line.hessian @ line.gradient.unsqueeze(-1)).squeeze(-1) / 2
    return DescentGap(
        line.flow.times, line.flow, line.response(forcing)[line.reported], line.reported_hessian
    )
