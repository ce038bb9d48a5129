"""The path of a training run: times, parameters, risks, and how it ended."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import Attention, SoftmaxAttention
from largeprompt.errors import InvalidArgumentError
from largeprompt.training.dynamics.integrate import Array, Outcome, Solution, Status
from largeprompt.training.dynamics.parameters import Parametrisation
from largeprompt.training.risk.objective import Objective

if TYPE_CHECKING:
    import xarray as xr


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
        'finished' at the last time, 'converged' on the gradient norm, 'interrupted' by Ctrl-C, 'diverged'.
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
        several: bool,
        ending: tuple[Status, str],
        config: dict[str, Any],
        interpolate: Callable[[float], Array] | None = None,
    ) -> Trajectory:
        """The trajectory with θ at the reported times, path (time, run, p)."""
        found = [objective.gradient(theta) for theta in path]
        risk = torch.stack([risks for risks, _ in found], dim=1)
        norm = torch.stack([gradient.norm(dim=-1) for _, gradient in found], dim=1)
        conserved = torch.stack([objective.parametrisation.conserved(theta) for theta in path], dim=1)
        pick = slice(None) if several else 0
        names = [str(x) if math.isinf(x) else x for x in objective.lengths]
        return cls(
            times,
            path.transpose(0, 1)[pick],
            risk[pick],
            norm[pick],
            conserved[pick],
            objective.lengths if several else objective.lengths[0],
            objective,
            *ending,
            {**config, "lengths": names, "attention": _word(objective)},
            interpolate,
        )

    @classmethod
    def of_flow(cls, objective: Objective, found: Solution, several: bool, config: dict[str, Any]) -> Trajectory:
        """The same of the solution of a differential equation in θ, all runs one after the other."""
        path = torch.from_numpy(found.states).reshape(len(found.times), len(objective.lengths), -1)
        return cls.of(objective, torch.from_numpy(found.times), path, several, (found.status, found.message), config, found.at)

    @property
    def parametrisation(self) -> Parametrisation:
        """What θ is."""
        return self.objective.parametrisation

    def theta(self, time: float) -> Tensor:
        """θ at any time of the path, shape (..., p): dense output of the solver, or linear between the steps of a descent."""
        time = float(time)
        first, last = float(self.times[0]), float(self.times[-1])
        if not first <= time <= last:
            raise InvalidArgumentError("time", f"{time:g}", f"a time from {first:g} to {last:g}, where the run is known")
        if self._interpolate is not None:
            return torch.from_numpy(np.asarray(self._interpolate(time))).reshape_as(self.parameters[..., 0, :])
        if len(self.times) == 1:
            return self.parameters[..., 0, :]
        return between(self.times, self.parameters, self.times.new_tensor([time]), -2).squeeze(-2)

    def at(self, time: float) -> Attention:
        """The layer at that time; several lengths lead as heads do."""
        theta = self.theta(time)
        U, V = self.parametrisation.layer(theta.reshape(-1, theta.shape[-1]))
        shape = theta.shape[:-1]
        return self.objective.kind(U.reshape(*shape, *U.shape[-2:]), V.reshape(*shape, *V.shape[-2:]))

    @property
    def dataset(self) -> xr.Dataset:
        """Everything as a labelled dataset with dimensions (length,) time and parameter."""
        import xarray as xr  # brings pandas along, and few need it

        lead = ("length",) if self.risk.dim() == 2 else ()
        coords: dict[str, Any] = {"time": self.times.numpy(), "parameter": self.parametrisation.names()}
        if lead:
            coords["length"] = np.asarray(self.length, dtype=np.float64)
        return xr.Dataset(
            {
                "theta": ((*lead, "time", "parameter"), self.parameters.numpy()),
                "risk": ((*lead, "time"), self.risk.numpy(), {"long_name": "population risk, 1/2 E(error)^2, noise included"}),
                "gradient_norm": ((*lead, "time"), self.gradient_norm.numpy()),
                "conserved": ((*lead, "time"), self.conserved.numpy(), {"long_name": "conserved by the infinite-prompt flow"}),
            },
            coords=coords,
            attrs={"status": self.status, "message": self.message, "config": json.dumps(self.config)},
        )

    def __repr__(self) -> str:
        size = f"length={self.length}" if self.risk.dim() == 1 else f"{self.risk.shape[0]} lengths"
        end = validation.shape_text(self.risk.shape[:-1]) if self.risk.dim() > 1 else f"{float(self.risk[-1]):.6g}"
        return f"Trajectory({_word(self.objective)}, {size}, until={float(self.times[-1]):g}, risk={end}, {self.status})"


def between(times: Tensor, values: Tensor, wanted: Tensor, axis: int = 0) -> Tensor:
    """Values along an axis of times, linear in between, at the wanted times."""
    right = torch.searchsorted(times, wanted.contiguous()).clamp(1, len(times) - 1)
    share = ((wanted - times[right - 1]) / (times[right] - times[right - 1])).clamp(0.0, 1.0)
    shape = [1] * values.dim()
    shape[axis] = -1
    share = share.reshape(shape)
    return (1 - share) * values.index_select(axis, right - 1) + share * values.index_select(axis, right)


def _word(objective: Objective) -> str:
    return "softmax" if issubclass(objective.kind, SoftmaxAttention) else "linear"
