"""How far SGD is from the gradient flow: covariance, mean and risk of its runs to first order in
step size over batch size.
"""

import dataclasses
import math
from typing import Any, Unpack

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import Attention
from largeprompt.errors import InvalidArgumentError
from largeprompt.studies.discrete.ensemble import gradient_noise
from largeprompt.training.dynamics.flow import FlowOptions, gradient_flow
from largeprompt.training.dynamics.trajectory import between, slopes_along
from largeprompt.training.gaps.descent import DescentGap, gap_of
from largeprompt.training.gaps.linearised import linearise
from largeprompt.training.tasks.task import Task

DIFFERENCE = 0.02  # step of the second difference of the gradient, in units of the deviation itself


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class StochasticGap:
    """What SGD of step size η and batch size B does around the flow, to first order: Cov θ = (η/B)
    P, E θ - θ_flow = η δ + (η/B) m.

    Attributes
    ----------
    times
        Shape (time,).
    descent
        The flow, and δ, the part that full-batch descent has as well.
    covariance
        P, shape (time, p, p).
    shift
        m, shape (time, p): the curvature of the risk pushes the mean of noisy runs.
    noise
        C, covariance of the gradient of a single prompt along the flow, shape (time, p, p).
    gradient
        ∇R along the flow, shape (time, p).
    spread_error
        Standard error of tr P that the drawn prompts behind C leave, shape (time,).
    """

    times: Tensor
    descent: DescentGap
    covariance: Tensor
    shift: Tensor
    noise: Tensor
    gradient: Tensor
    spread_error: Tensor

    @property
    def spread(self) -> Tensor:
        """tr P, shape (time,)."""
        return self.covariance.diagonal(dim1=-2, dim2=-1).sum(-1)

    def mean(self, step_size: float, batch_size: float) -> Tensor:
        """E θ - θ_flow = ηδ + (η/B)m, shape (time, p); an infinite batch is gradient descent."""
        return step_size * self.descent.displacement + step_size / batch_size * self.shift

    def root_mean_square(self, step_size: float, batch_size: float) -> Tensor:
        """Root mean squared distance of a run from the flow, shape (time,)."""
        return (
            step_size / batch_size * self.spread + self.mean(step_size, batch_size).square().sum(-1)
        ).sqrt()

    def excess_risk(self, step_size: float, batch_size: float) -> Tensor:
        """Mean risk of the runs less the flow's, ∇R·(mean) + (η/2B) tr HP, shape (time,)."""
        bent = torch.einsum("tij,tji->t", self.descent.hessian, self.covariance)
        return (self.gradient * self.mean(step_size, batch_size)).sum(-1) + step_size / (
            2 * batch_size
        ) * bent

    def risk_deviation(self, step_size: float, batch_size: float) -> Tensor:
        """Standard deviation of the risk between runs, √((η/B) ∇R^T P ∇R + (η/B)² tr(HP)²/2), shape
        (time,).
        """
        linear = torch.einsum(
            "ti,tij,tj->t", self.gradient, self.covariance, self.gradient
        ).clamp_min(0.0)
        product = self.descent.hessian @ self.covariance
        square = torch.einsum("tij,tji->t", product, product).clamp_min(0.0)
        share = step_size / batch_size
        return (share * linear + share**2 * square / 2).sqrt()

    def stationary_excess(self, step_size: float, batch_size: float) -> float:
        """(η/4B) tr C at the last time: the excess risk at which noise and descent balance around a
        minimum (from PH + HP = C).
        """
        return step_size / (4 * batch_size) * float(self.noise[-1].trace())

    def __repr__(self) -> str:
        return (
            f"StochasticGap(until={float(self.times[-1]):g}, root mean square "
            f"{math.sqrt(float(self.spread[-1])):.4g} times the root of step size over batch size)"
        )


def stochastic_gap(
    task: Task,
    attention: Attention,
    length: int,
    until: float,
    generator: validation.Randomness,
    *,
    noise_times: int = 25,
    prompts: int = 2**15,
    groups: int = 8,
    shift: bool = True,
    resolution: float = 0.25,
    **options: Unpack[FlowOptions],
) -> StochasticGap:
    """Predict the runs of SGD around the gradient flow, without running SGD.

    Formulas (dyn.11-12) of docs/mathematics/dynamics.md. Along flat directions P grows like a
    random walk; where the Hessian is positive it settles at the solution of HP + PH = C.

    Parameters
    ----------
    noise_times, prompts
        C is estimated from ``prompts`` freshly drawn prompts at each of so many of the times, and
        linear in between.
    groups
        The prompts are split into so many groups, whose scatter gives ``spread_error``.
    shift
        Whether m is computed, which takes 2p + 1 gradients at each time; zero otherwise.
    resolution, options
        As for :func:`descent_gap`; ``tolerance`` is 1e-7 when left out.

    Returns
    -------
    StochasticGap
        With the flow and the gap of gradient descent.

    Examples
    --------
    >>> from largeprompt.studies.discrete.stochastic_gap import stochastic_gap
    >>> task = lp.LinearRegression([[1.0]], [[1.0]], 0.0)
    >>> attention = lp.SoftmaxAttention([[0.3, 0.0], [0.0, 0.0]], [[0.0, 0.3]])
    >>> generator = torch.Generator().manual_seed(0)
    >>> gap = stochastic_gap(task, attention, 20, 2.0, generator, prompts=256, shift=False, parametrisation="block")
    >>> bool((gap.root_mean_square(0.01, 32)[1:] > 0).all())
    True
    """
    generator = validation.generator(generator, torch.device("cpu"))
    length = int(validation.length("length", length))
    prompts, groups = (
        validation.integer("prompts", prompts, minimum=4),
        validation.integer("groups", groups, minimum=2),
    )
    noise_times, shift = (
        validation.integer("noise_times", noise_times, minimum=2),
        validation.flag("shift", shift),
    )
    if 2 * groups > prompts:
        raise InvalidArgumentError(
            "groups", str(groups), f"at most {prompts // 2}, half as many as prompts"
        )
    options.setdefault("tolerance", 1e-7)
    validation.instance("task", task, Task, "a Task, such as LinearRegression")
    validation.affordable(
        "length", length, needed=8.0 * length * task.token_dim, remedy="Take a shorter prompt."
    )
    flow = gradient_flow(task, attention, length, until, **options).completed()
    line, objective = linearise(flow, resolution), flow.objective
    count = min(noise_times, len(flow.times))
    at = flow.times[torch.linspace(0, len(flow.times) - 1, count).round().long().unique()]
    drawn = torch.stack(
        [
            gradient_noise(
                task, objective, flow.theta(float(t)), length, prompts, generator, groups=groups
            )
            for t in at
        ],
        1,
    )  # (group, noise time, p, p)
    along = line.covariance(
        between(at, drawn, line.nodes.reshape(-1), 1).reshape(groups, *line.hessian.shape)
    )
    along = along[:, line.reported]  # (group, time, p, p)
    covariance = along.mean(0)
    error = along.diagonal(dim1=-2, dim2=-1).sum(-1).std(0) / math.sqrt(groups)
    path = flow.parameters
    bend = torch.zeros_like(path)
    if shift:
        repeated = objective.with_lengths([length] * (2 * path.shape[-1] + 1))
        bend = torch.stack(
            [_third(repeated.gradient, theta, P) for theta, P in zip(path, covariance, strict=True)]
        )
    forcing = -between(flow.times, bend, line.nodes.reshape(-1)).reshape(line.gradient.shape) / 2
    return StochasticGap(
        flow.times,
        gap_of(line),
        covariance,
        line.response(forcing)[line.reported],
        between(at, drawn.mean(0), flow.times),
        slopes_along(objective, path.unsqueeze(1))[1].squeeze(1),
        error,
    )


def _third(gradient: Any, theta: Tensor, covariance: Tensor) -> Tensor:
    """∇³R : P at θ, shape (p,), as second differences of the gradient along the columns of a root
    of P.
    """
    values, vectors = torch.linalg.eigh(covariance)
    largest = float(values[-1])
    if largest <= 0:
        return torch.zeros_like(theta)
    columns = vectors * (values.clamp_min(0.0) / largest).sqrt()  # at most unit length
    moved = DIFFERENCE * columns.mT
    slopes: Tensor = gradient(torch.cat([theta + moved, theta - moved, theta.unsqueeze(0)]))[1]
    count = len(theta)
    return (slopes[:count] + slopes[count:-1] - 2 * slopes[-1]).sum(0) * largest / DIFFERENCE**2
