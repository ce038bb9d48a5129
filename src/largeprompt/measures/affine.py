"""The image of a measure under an affine map: a wrapper for laws whose family is not closed under such maps."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from largeprompt.measures.base import Measure


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class AffineImage(Measure):
    """Law of A x + b for x from ``base``: Λ(v) = Λ_base(A^T v) + b·v, tilted by v it is the image of the tilt by A^T v.

    Made by :meth:`Measure.map`.
    """

    base: Measure
    matrix: Tensor  # A, shape (o, d)
    offset: Tensor  # b, shape (o,)

    @property
    def dim(self) -> int:
        return self.matrix.shape[0]

    @property
    def batch_shape(self) -> torch.Size:
        return self.base.batch_shape

    @property
    def dtype(self) -> torch.dtype:
        return self.base.dtype

    @property
    def device(self) -> torch.device:
        return self.base.device

    @property
    def support_radius(self) -> float:
        return float(torch.linalg.matrix_norm(self.matrix, 2)) * self.base.support_radius + float(self.offset.norm())

    def cgf(self, u: Tensor) -> Tensor:
        u = self._tilts(u)
        return self.base.cgf(u @ self.matrix) + u @ self.offset

    def tilted_mean(self, u: Tensor) -> Tensor:
        return self.base.tilted_mean(self._tilts(u) @ self.matrix) @ self.matrix.mT + self.offset

    def tilted_covariance(self, u: Tensor) -> Tensor:
        return self.matrix @ self.base.tilted_covariance(self._tilts(u) @ self.matrix) @ self.matrix.mT

    def tilt(self, u: Tensor) -> Measure:
        return AffineImage(self.base.tilt(self._tilts(u) @ self.matrix), self.matrix, self.offset)

    def map(self, matrix: Tensor, offset: Tensor | None = None) -> Measure:
        matrix, offset = self._affine(matrix, offset)
        return AffineImage(self.base, matrix @ self.matrix, matrix @ self.offset + offset)

    def directional_cumulants(self, directions: Tensor, u: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        a = self._directions(directions)
        inner = None if u is None else self._tilts(u) @ self.matrix
        k1, k2, k3, k4 = self.base.directional_cumulants(a @ self.matrix, inner)
        return k1 + (a @ self.offset).reshape(-1, *(1,) * (k1.dim() - 1)), k2, k3, k4

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        return self.base.sample(n, generator) @ self.matrix.mT + self.offset

    def sample_tilted(self, u: Tensor, n: int, generator: torch.Generator) -> Tensor:
        return self.base.sample_tilted(self._tilts(u) @ self.matrix, n, generator) @ self.matrix.mT + self.offset

    def _details(self) -> str:
        return f", base={self.base!r}"
