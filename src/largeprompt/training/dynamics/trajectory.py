"""The path of a training run: times, parameters, risks, and how it ended."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import Attention, SoftmaxAttention
from largeprompt.display.labels import named
from largeprompt.display.look import Axes, draw_paths
from largeprompt.display.tables import Columns, html_table, plain, text_table
from largeprompt.errors import InvalidArgumentError
from largeprompt.training.dynamics.integrate import Array, Outcome, Solution, Status
from largeprompt.training.dynamics.objective import Objective
from largeprompt.training.dynamics.parameters import Parametrization

if TYPE_CHECKING:
    import xarray as xr

LAYERS_AT_ONCE = 16  # layers whose derivatives are taken together


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Trajectory(Outcome):
    """What a dynamics did.

    Shapes: a single length has none in front; several lengths lead.

    Attributes
    ----------
    times
        Times (flow) or step numbers times the step size (descent), shape (time,).
    parameters
        θ, shape (..., time, p).
    risk
        Population risk, noise included, shape (..., time).
    gradient_norm
        ‖∇R‖, shape (..., time).
    conserved
        The quantity that the infinite-prompt flow conserves, shape (..., time).
    objective
        The risk that was descended.
    status
        'finished' at the last time, 'converged' on the gradient norm, 'interrupted' by Ctrl-C,
        'diverged'.
    message
        In words.
    """

    times: Tensor
    parameters: Tensor
    risk: Tensor
    gradient_norm: Tensor
    conserved: Tensor
    length: Any
    objective: Objective
    status: Status
    message: str
    config: dict[str, Any]
    _interpolate: Callable[[float], Array] | None = None

    @classmethod
    def of(
        cls,
        objective: Objective,
        times: Tensor,
        path: Tensor,
        gradients: Tensor,
        several: bool,
        ending: tuple[Status, str],
        config: dict[str, Any],
        interpolate: Callable[[float], Array] | None = None,
    ) -> Trajectory:
        """The trajectory with θ (time, run, p) and gradients (time, run, p) at the reported times;
        its risks are those of ``task.risk``.
        """
        flat = path.reshape(-1, path.shape[-1])
        conserved = objective.parametrization.conserved(flat).reshape(path.shape[:-1])
        exact = [many.risks(theta) for many, theta in _along(objective, path)]
        risks = torch.cat(exact).reshape(path.shape[:-1])
        pick = slice(None) if several else 0
        names = [str(x) if math.isinf(x) else x for x in objective.lengths]
        return cls(
            times,
            path.transpose(0, 1)[pick],
            risks.mT[pick],
            gradients.norm(dim=-1).mT[pick],
            conserved.mT[pick],
            objective.lengths if several else objective.lengths[0],
            objective,
            *ending,
            {**config, "length": names, "attention": _word(objective)},
            interpolate,
        )

    @classmethod
    def of_flow(
        cls, objective: Objective, found: Solution, several: bool, config: dict[str, Any]
    ) -> Trajectory:
        """The trajectory of a differential equation in θ, all runs one after the other."""
        path = torch.from_numpy(found.states).reshape(len(found.times), len(objective.lengths), -1)
        gradients = slopes_along(objective, path)[1]
        return cls.of(
            objective,
            torch.from_numpy(found.times),
            path,
            gradients,
            several,
            (found.status, found.message),
            config,
            found.at,
        )

    @property
    def parametrization(self) -> Parametrization:
        """What θ is."""
        return self.objective.parametrization

    def theta(self, time: float) -> Tensor:
        """θ at any time of the path, shape (..., p): dense output of the solver, or linear between
        the steps of a descent.
        """
        time = float(time)
        first, last = float(self.times[0]), float(self.times[-1])
        if not first <= time <= last:
            raise InvalidArgumentError(
                "time", f"{time:g}", f"a time from {first:g} to {last:g}, where the run is known"
            )
        if self._interpolate is not None:
            return torch.from_numpy(np.asarray(self._interpolate(time))).reshape_as(
                self.parameters[..., 0, :]
            )
        if len(self.times) == 1:
            return self.parameters[..., 0, :]
        return between(self.times, self.parameters, self.times.new_tensor([time]), -2).squeeze(-2)

    def at(self, time: float) -> Attention:
        """The layer at that time, on the device of the layer that was trained; several lengths lead
        as heads do.
        """
        theta = self.theta(time)
        U, V = self.parametrization.layer(theta.reshape(-1, theta.shape[-1]))
        shape = theta.shape[:-1]
        layer = self.objective.kind(
            U.reshape(*shape, *U.shape[-2:]), V.reshape(*shape, *V.shape[-2:])
        )
        return layer.to(device=self.objective.device)

    def to_xarray(self) -> xr.Dataset:
        """Everything as a labeled dataset with dimensions (length,) time and parameter."""
        import xarray as xr  # brings pandas along, and few need it

        lead = ("length",) if self.risk.dim() == 2 else ()
        path = (*lead, "time")
        return xr.Dataset(
            {
                "theta": (
                    (*path, "parameter"),
                    self.parameters.numpy(),
                    named("parameter of the layer"),
                ),
                "risk": (
                    path,
                    self.risk.numpy(),
                    named("population risk, 1/2 E(error)^2, noise included"),
                ),
                "gradient_norm": (
                    path,
                    self.gradient_norm.numpy(),
                    named("norm of the gradient of the risk"),
                ),
                "conserved": (
                    path,
                    self.conserved.numpy(),
                    named("conserved by the infinite-prompt flow"),
                ),
            },
            coords={
                "time": ("time", self.times.numpy(), named("time")),
                "parameter": (
                    "parameter",
                    self.parametrization.names(),
                    named("entry of the parameter", "label"),
                ),
                "length": (
                    lead,
                    np.asarray(self.length, dtype=np.float64),
                    named("prompt length", "tokens"),
                ),
            },
            attrs={
                "status": self.status,
                "message": self.message,
                "config": json.dumps(self.config),
            },
        )

    def plot(
        self, axes: Axes | None = None, *, show: Literal["risk", "parameters"] = "risk", **line: Any
    ) -> Axes:
        """Draw the run against time, one color for each length and black for the infinite prompt.

        Parameters
        ----------
        axes
            Where to draw: axes of matplotlib, new ones when left out.
        show
            'risk', on a logarithmic axis, or 'parameters', every entry of θ.
        line
            ``color``, ``ls`` and whatever else ``Axes.plot`` takes.

        Returns
        -------
        matplotlib.axes.Axes
            The axes, for more to be drawn on.
        """
        if show not in ("risk", "parameters"):
            raise InvalidArgumentError("show", validation.text(show), "'risk' or 'parameters'")
        values = self.risk if show == "risk" else self.parameters
        axes = draw_paths(
            axes, self.times, values if self.risk.dim() > 1 else values[None], self.length, **line
        )
        if show == "risk":
            axes.set(yscale="log", ylabel="population risk")
        else:
            axes.set_ylabel(r"parameters $\theta$")
        return axes

    def _words(self, *more: str) -> str:
        return f"Trajectory({', '.join([_word(self.objective), *more, self.status])})"

    def _ends(self) -> Columns:
        """Length, and where each run ended."""
        several = self.risk.dim() > 1
        ends = {
            name: getattr(self, name)[..., -1].reshape(-1).tolist()
            for name in ("risk", "gradient_norm")
        }
        return {"length": list(self.length) if several else [self.length]} | ends

    def _repr_html_(self) -> str:
        return html_table(self._words(f"until={float(self.times[-1]):.4g}"), self._ends())

    def __repr__(self) -> str:
        until = f"until={float(self.times[-1]):.4g}"
        if self.risk.dim() > 1:
            return text_table(self._words(f"{self.risk.shape[0]} lengths", until), self._ends())
        return self._words(
            f"length={plain(self.length)}", until, f"risk={float(self.risk[-1]):.4g}"
        )


def _along(objective: Objective, path: Tensor) -> Iterator[tuple[Objective, Tensor]]:
    """Pieces of a path (time, run, p), each as θ (n, p) with the risk of all its points at once."""
    runs, many = len(objective.lengths), objective
    for part in path.split(max(1, LAYERS_AT_ONCE // runs)):
        if len(many.lengths) != len(part) * runs:
            many = objective.with_lengths(objective.lengths * len(part))
        yield many, part.reshape(-1, path.shape[-1])


def slopes_along(objective: Objective, path: Tensor) -> tuple[Tensor, Tensor]:
    """Risks (time, run) and their gradients (time, run, p) at every point of a path (time, run, p),
    several points at once.
    """
    risks, gradients = zip(
        *(many.gradient(theta) for many, theta in _along(objective, path)), strict=True
    )
    return torch.cat(risks).reshape(path.shape[:-1]), torch.cat(gradients).reshape(path.shape)


def hessians_along(objective: Objective, path: Tensor) -> Tensor:
    """Hessians of the risks at every point of a path (time, run, p), shape (time, run, p, p)."""
    found = torch.cat([many.hessian(theta) for many, theta in _along(objective, path)])
    return found.reshape(*path.shape, path.shape[-1])


def between(times: Tensor, values: Tensor, wanted: Tensor, axis: int = 0) -> Tensor:
    """Values along an axis of times, linear in between, at the wanted times."""
    right = torch.searchsorted(times, wanted.contiguous()).clamp(1, len(times) - 1)
    share = ((wanted - times[right - 1]) / (times[right] - times[right - 1])).clamp(0.0, 1.0)
    shape = [1] * values.dim()
    shape[axis] = -1
    share = share.reshape(shape)
    return (1 - share) * values.index_select(axis, right - 1) + share * values.index_select(
        axis, right
    )


def _word(objective: Objective) -> str:
    return "softmax" if issubclass(objective.kind, SoftmaxAttention) else "linear"
