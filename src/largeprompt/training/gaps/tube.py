"""How far the flow of a finite prompt strays from the infinite-prompt flow, and the Grönwall
envelope around it.
"""

from __future__ import annotations

import dataclasses
import json
import math
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import Attention
from largeprompt.devices import sheltered
from largeprompt.display.labels import named
from largeprompt.display.look import Axes, draw_paths
from largeprompt.display.tables import html_table
from largeprompt.errors import InvalidArgumentError
from largeprompt.training.dynamics.flow import FlowOptions, gradient_flow
from largeprompt.training.dynamics.trajectory import Trajectory, hessians_along, slopes_along
from largeprompt.training.tasks.task import Task

if TYPE_CHECKING:
    import xarray as xr


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
        μ(t), minus the smallest eigenvalue of the mean Hessian of R_L between θ_∞(t) and θ_L(t),
        shape (length, time).
    envelope
        The solution of E' = forcing + μE, E(0) = 0, shape (length, time): not below the distance,
        up to the resolution of the times.
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

    def to_xarray(self) -> xr.Dataset:
        """Everything as a labeled dataset with dimensions length and time."""
        import xarray as xr

        values = {
            "distance": (self.distance, "distance between the flows"),
            "forcing": (self.forcing, "difference of the gradients on the limit flow"),
            "growth": (self.growth, "minus the smallest Hessian eigenvalue between the flows"),
            "envelope": (self.envelope, "Gronwall envelope"),
            "risk": (self.flow.risk, "population risk at this length"),
            "limit_risk": (self.limit.risk[0], "population risk of the infinite prompt"),
        }
        data = {
            name: (("length", "time")[-value.dim() :], value.numpy(), named(words))
            for name, (value, words) in values.items()
        }
        lengths = (
            "length",
            np.asarray(self.flow.length, dtype=np.float64),
            named("prompt length", "tokens"),
        )
        coords = {"length": lengths, "time": ("time", self.times.numpy(), named("time"))}
        return xr.Dataset(data, coords, {"config": json.dumps(self.flow.config)})

    def plot(self, axes: Axes | None = None, **line: Any) -> Axes:
        """Draw the distance between the flows against time, and its envelope dashed, one color for
        each length.

        Parameters
        ----------
        axes
            Where to draw: axes of matplotlib, new ones when left out.
        line
            ``color``, ``lw`` and whatever else ``Axes.plot`` takes.

        Returns
        -------
        matplotlib.axes.Axes
            The axes, for more to be drawn on.
        """
        # at time 0 both are 0, which a logarithmic axis does not show
        times, later = self.times[1:], slice(1, None)
        axes = draw_paths(
            axes,
            times,
            self.envelope[:, later],
            self.flow.length,
            named=False,
            **{"ls": "--", "lw": 0.9} | line,
        )
        axes = draw_paths(
            axes, times, self.distance[:, later], self.flow.length, **{"ls": "-"} | line
        )
        axes.set(yscale="log", ylabel=r"$\|\theta_L(t)-\theta_\infty(t)\|$ (dashed: envelope)")
        return axes

    def _repr_html_(self) -> str:
        columns = {
            "length": self.flow.length,
            "supremum": self.supremum.tolist(),
            "envelope at the end": self.envelope[:, -1].tolist(),
        }
        return html_table(f"Tube(until={float(self.times[-1]):g})", columns)

    def __repr__(self) -> str:
        pairs = ", ".join(
            f"{length:g}: {float(sup):.3g}"
            for length, sup in zip(self.flow.length, self.supremum, strict=True)
        )
        return f"Tube(until={float(self.times[-1]):g}, supremum={{{pairs}}})"


@sheltered
def tube(
    task: Task,
    attention: Attention,
    length: validation.Lengths,
    until: float,
    **options: Unpack[FlowOptions],
) -> Tube:
    """Run the flows of several lengths and of the infinite prompt from the same start, and bound
    their distance.

    Formulas (dyn.7-8) of docs/mathematics/dynamics.md: Grönwall's lemma with what the run itself
    met, not the worst case of a ball. Between reported times forcing and μ are taken at the larger
    of their two ends, so that the times should be dense enough to see their peaks.

    Parameters
    ----------
    length
        One finite prompt length, or several.
    options
        ``parametrization``, ``times`` (on which the envelope is computed), ``tolerance``,
        ``average`` and ``progress`` as for :func:`gradient_flow`.

    Returns
    -------
    Tube
        Distances, envelopes, and the flows themselves.

    Examples
    --------
    >>> task = lp.LinearRegression([[1.0]], [[1.0]], 0.0)
    >>> attention = lp.SoftmaxAttention([[0.1, 0.0], [0.0, 0.0]], [[0.0, 0.1]])
    >>> block = {"parametrization": "block"}
    >>> found = lp.training.tube(task, attention, [100, 10_000], until=5.0, **block)
    >>> bool((found.distance <= found.envelope).all()), bool(found.supremum[1] < found.supremum[0])
    (True, True)
    """
    chosen, _ = validation.lengths("length", length, allow_infinity=False)
    both = gradient_flow(task, attention, [*chosen, math.inf], until, **options).completed()
    if len(both.times) < 2:
        raise InvalidArgumentError(
            "times", str(options.get("times")), "at least two times that the flow reached"
        )
    objective, endless = both.objective.with_lengths(chosen), both.objective.with_lengths(math.inf)
    flow, limit = _part(both, slice(0, len(chosen))), _part(both, slice(len(chosen), None))
    nodes, weights = (torch.from_numpy(value) for value in np.polynomial.legendre.leggauss(4))
    start, end = limit.parameters.transpose(0, 1), flow.parameters.transpose(0, 1)  # (time, run, p)
    push = (
        (slopes_along(objective, start.expand_as(end))[1] - slopes_along(endless, start)[1])
        .norm(dim=-1)
        .mT
    )
    mean = sum(
        weight / 2 * hessians_along(objective, start + (1 + node) / 2 * (end - start))
        for node, weight in zip(nodes, weights, strict=True)
    )
    mu = -torch.linalg.eigvalsh(mean)[..., 0].mT
    distance = (flow.parameters - limit.parameters).norm(dim=-1)
    return Tube(both.times, distance, push, mu, gronwall(both.times, push, mu), flow, limit)


def gronwall(times: Tensor, forcing: Tensor, growth: Tensor) -> Tensor:
    """Solution of E' = forcing + growth E, E(0) = 0, on the times, both taken at the larger end of
    each interval.
    """
    envelope = [torch.zeros_like(forcing[..., 0])]
    for k, step in enumerate(times.diff()):
        push, mu = (torch.maximum(value[..., k], value[..., k + 1]) for value in (forcing, growth))
        gain = torch.where(
            (mu * step).abs() < 1e-12, step, torch.expm1(mu * step) / torch.where(mu == 0, 1.0, mu)
        )
        grown, added = envelope[-1] * torch.exp(mu * step), push * gain
        zero = torch.zeros_like(push)  # nothing grown by infinity is nothing
        envelope.append(
            torch.where(envelope[-1] == 0, zero, grown) + torch.where(push == 0, zero, added)
        )
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
        _interpolate=None
        if flow._interpolate is None
        else lambda time: flow.theta(time)[runs].numpy(),
    )
