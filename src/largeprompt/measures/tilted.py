"""The tilt of a measure that is not of a closed family: a wrapper that shifts the argument of the cgf."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from largeprompt.measures.base import Measure


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Tilted(Measure):
    """Exponential tilt e^{u·x - Λ(u)} μ(dx) of ``base``, with cgf Λ(u + v) - Λ(u).

    Made by :meth:`Measure.tilt`, which also raises where Λ(u) is infinite.
    """

    base: Measure
    natural: Tensor  # u, shape (..., d)

    def __post_init__(self) -> None:
        self.base.cgf(self.natural)  # raises outside the domain

    @property
    def dim(self) -> int:
        return self.base.dim

    @property
    def batch_shape(self) -> torch.Size:
        return torch.Size(torch.broadcast_shapes(self.base.batch_shape, self.natural.shape[:-1]))

    @property
    def dtype(self) -> torch.dtype:
        return self.base.dtype

    @property
    def device(self) -> torch.device:
        return self.base.device

    @property
    def support_radius(self) -> float:
        return self.base.support_radius

    def cgf(self, u: Tensor) -> Tensor:
        return self.base.cgf(self.natural + self._tilts(u)) - self.base.cgf(self.natural)

    def tilted_mean(self, u: Tensor) -> Tensor:
        return self.base.tilted_mean(self.natural + self._tilts(u))

    def tilted_covariance(self, u: Tensor) -> Tensor:
        return self.base.tilted_covariance(self.natural + self._tilts(u))

    def tilt(self, u: Tensor) -> Measure:
        return self.base.tilt(self.natural + self._tilts(u))

    def tilted_norm_moment4(self, u: Tensor, center: Tensor) -> Tensor:
        return self.base.tilted_norm_moment4(self.natural + self._tilts(u), center)

    def directional_cumulants(self, directions: Tensor, u: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.base.directional_cumulants(directions, self.natural if u is None else self.natural + self._tilts(u))

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        return self.base.sample_tilted(self.natural, self._size(n, generator), generator)

    def sample_tilted(self, u: Tensor, n: int, generator: torch.Generator) -> Tensor:
        return self.base.sample_tilted(self.natural + self._tilts(u), self._size(n, generator), generator)

    def _details(self) -> str:
        return f", base={self.base!r}"
