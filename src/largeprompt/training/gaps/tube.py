"""How far the flow of a finite prompt strays from the infinite-prompt flow, and the Grönwall envelope around it."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import TYPE_CHECKING, Unpack

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import Attention
from largeprompt.errors import InvalidArgumentError
from largeprompt.training.dynamics.flow import FlowOptions, gradient_flow
from largeprompt.training.dynamics.trajectory import Trajectory
from largeprompt.training.tasks.task import Task

if TYPE_CHECKING:
    import xarray as xr

NODES = 4  # Gauss-Legendre points of the mean Hessian between the two flows


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Tube:
    """δ(t) = θ_L(t) - θ_∞(t) for several lengths, and what bounds it.

    Attributes
    ----------
    times
        Shape (time,).
    distance
        ‖δ(t)‖, shape (length, time).
    forcing
        ‖∇R_L(θ_∞(t)) - ∇R_∞(θ_∞(t))‖, shape (length, time): what pushes the flows apart.
    growth
        μ(t), minus the smallest eigenvalue of the mean Hessian of R_L between θ_∞(t) and θ_L(t), shape (length, time).
    envelope
        The solution of E' = forcing + μE, E(0) = 0, shape (length, time): not below the distance, up to the
        resolution of the times.
    flow, limit
        The trajectories themselves.
    """

    times: Tensor
    distance: Tensor
    forcing: Tensor
    growth: Tensor
    envelope: Tensor
    flow: Trajectory
    limit: Trajectory

    @property
    def supremum(self) -> Tensor:
        """sup over t of ‖δ(t)‖, shape (length,)."""
        return self.distance.amax(-1)

    @property
    def dataset(self) -> xr.Dataset:
        """Everything as a labelled dataset with dimensions length and time."""
        import xarray as xr

        grid = ("length", "time")
        return xr.Dataset(
            {
                "distance": (grid, self.distance.numpy(), {"long_name": "distance between the flows"}),
                "forcing": (grid, self.forcing.numpy(), {"long_name": "difference of the gradients on the limit flow"}),
                "growth": (grid, self.growth.numpy(), {"long_name": "minus the smallest Hessian eigenvalue between the flows"}),
                "envelope": (grid, self.envelope.numpy(), {"long_name": "Gronwall envelope"}),
                "risk": (grid, self.flow.risk.numpy(), {"long_name": "population risk at this length"}),
                "limit_risk": ("time", self.limit.risk[0].numpy(), {"long_name": "population risk of the infinite prompt"}),
            },
            coords={"length": np.asarray(self.flow.length, dtype=np.float64), "time": self.times.numpy()},
            attrs={"config": json.dumps(self.flow.config)},
        )

    def __repr__(self) -> str:
        pairs = ", ".join(f"{length:g}: {float(sup):.3g}" for length, sup in zip(self.flow.length, self.supremum, strict=True))
        return f"Tube(until={float(self.times[-1]):g}, supremum={{{pairs}}})"


def tube(task: Task, attention: Attention, lengths: validation.Lengths, until: float, **options: Unpack[FlowOptions]) -> Tube:
    """Run the flows of several lengths and of the infinite prompt from the same start, and bound their distance.

    Formulas (dyn.7-8) of docs/mathematics/dynamics.md: Grönwall's lemma with what the run itself met, not the worst case of a ball.
    Between reported times forcing and μ are taken at the larger of their two ends, so that the times should be dense enough to see
    their peaks.

    Parameters
    ----------
    lengths
        Finite prompt lengths.
    options
        ``parametrisation``, ``times`` (on which the envelope is computed), ``tolerance``, ``average`` and ``progress`` as for
        :func:`gradient_flow`.

    Returns
    -------
    Tube
        Distances, envelopes, and the flows themselves.

    Examples
    --------
    >>> task = lp.LinearRegression([[1.0]], [[1.0]], 0.0)
    >>> attention = lp.SoftmaxAttention([[0.1, 0.0], [0.0, 0.0]], [[0.0, 0.1]])
    >>> average = lp.training.SobolAverage(256)
    >>> found = lp.training.tube(task, attention, [100, 10_000], until=5.0, parametrisation="block", average=average)
    >>> bool((found.distance <= found.envelope).all()), bool(found.supremum[1] < found.supremum[0])
    (True, True)
    """
    chosen, _ = validation.lengths("lengths", lengths, allow_infinity=False)
    both = gradient_flow(task, attention, [*chosen, math.inf], until, **options).completed()
    if len(both.times) < 2:
        raise InvalidArgumentError("times", str(options.get("times")), "at least two times that the flow reached")
    objective, endless = both.objective.with_lengths(chosen), both.objective.with_lengths(math.inf)
    flow, limit = _part(both, slice(0, len(chosen))), _part(both, slice(len(chosen), None))
    nodes, weights = (torch.from_numpy(value) for value in np.polynomial.legendre.leggauss(NODES))
    forcing, growth = [], []
    for moment in range(len(both.times)):
        start, end = limit.parameters[0, moment].expand(len(chosen), -1), flow.parameters[:, moment]
        forcing.append((objective.gradient(start)[1] - endless.gradient(start[:1])[1]).norm(dim=-1))
        mean = sum(
            weight / 2 * objective.hessian(start + (1 + node) / 2 * (end - start))
            for node, weight in zip(nodes, weights, strict=True)
        )
        growth.append(-torch.linalg.eigvalsh(mean)[:, 0])
    push, mu = torch.stack(forcing, -1), torch.stack(growth, -1)
    distance = (flow.parameters - limit.parameters).norm(dim=-1)
    return Tube(both.times, distance, push, mu, gronwall(both.times, push, mu), flow, limit)


def gronwall(times: Tensor, forcing: Tensor, growth: Tensor) -> Tensor:
    """Solution of E' = forcing + growth E, E(0) = 0, on the times, both taken at the larger end of each interval."""
    envelope = [torch.zeros_like(forcing[..., 0])]
    for k, step in enumerate(times.diff()):
        push, mu = (torch.maximum(value[..., k], value[..., k + 1]) for value in (forcing, growth))
        gain = torch.where((mu * step).abs() < 1e-12, step, torch.expm1(mu * step) / torch.where(mu == 0, 1.0, mu))
        grown, added = envelope[-1] * torch.exp(mu * step), push * gain
        zero = torch.zeros_like(push)  # nothing grown by infinity is nothing
        envelope.append(torch.where(envelope[-1] == 0, zero, grown) + torch.where(push == 0, zero, added))
    return torch.stack(envelope, -1)


def _part(flow: Trajectory, runs: slice) -> Trajectory:
    """Some of the runs of a trajectory of several lengths."""
    return dataclasses.replace(
        flow,
        parameters=flow.parameters[runs],
        risk=flow.risk[runs],
        gradient_norm=flow.gradient_norm[runs],
        conserved=flow.conserved[runs],
        length=flow.length[runs],
        _interpolate=None if flow._interpolate is None else lambda time: flow.theta(time)[runs].numpy(),
    )
