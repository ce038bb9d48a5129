"""The path of a training run: times, parameters, risks, and how it ended."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import Attention, LinearAttention, SoftmaxAttention
from largeprompt.errors import InvalidArgumentError
from largeprompt.training.dynamics.parameters import Parametrisation
from largeprompt.training.risk.exact import RiskError

if TYPE_CHECKING:
    import xarray as xr

Status = Literal["finished", "converged", "interrupted", "diverged"]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Trajectory:
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
    softmax: bool
    parametrisation: Parametrisation
    status: Status
    message: str
    config: dict[str, Any]
    _interpolate: Callable[[float], NDArray[np.float64]] | None = None

    def theta(self, time: float) -> Tensor:
        """θ at any time of the path, shape (..., p): dense output of the solver, or linear between the steps of a descent."""
        time = float(time)
        first, last = float(self.times[0]), float(self.times[-1])
        if not first <= time <= last:
            raise InvalidArgumentError("time", f"{time:g}", f"a time from {first:g} to {last:g}, where the run is known")
        if self._interpolate is not None:
            return torch.from_numpy(np.asarray(self._interpolate(time))).reshape(
                self.parameters.shape[:-2] + self.parameters.shape[-1:]
            )
        right = int(torch.searchsorted(self.times, time).clamp(1, max(1, len(self.times) - 1))) if len(self.times) > 1 else 0
        if right == 0:
            return self.parameters[..., 0, :]
        low, high = float(self.times[right - 1]), float(self.times[right])
        share = (time - low) / (high - low)
        return (1 - share) * self.parameters[..., right - 1, :] + share * self.parameters[..., right, :]

    def at(self, time: float) -> Attention:
        """The layer at that time; several lengths lead as heads do."""
        theta = self.theta(time)
        U, V = self.parametrisation.layer(theta.reshape(-1, theta.shape[-1]))
        shape = theta.shape[:-1]
        kind = SoftmaxAttention if self.softmax else LinearAttention
        return kind(U.reshape(*shape, *U.shape[-2:]), V.reshape(*shape, *V.shape[-2:]))

    def completed(self) -> Trajectory:
        """Itself if it ran to its end; RiskError if it diverged, KeyboardInterrupt if it was interrupted."""
        if self.status == "interrupted":
            raise KeyboardInterrupt(self.message)
        if self.status == "diverged":
            raise RiskError(f"{self!r}: {self.message}")
        return self

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
        kind = "softmax" if self.softmax else "linear"
        size = f"length={self.length}" if self.risk.dim() == 1 else f"{self.risk.shape[0]} lengths"
        end = validation.shape_text(self.risk.shape[:-1]) if self.risk.dim() > 1 else f"{float(self.risk[-1]):.6g}"
        return f"Trajectory({kind}, {size}, until={float(self.times[-1]):g}, risk={end}, {self.status})"
