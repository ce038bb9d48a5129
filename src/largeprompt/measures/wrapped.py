"""Tilts and affine images of measures whose family is not closed under them."""

import dataclasses

import numpy as np
import torch
from torch import Tensor

from largeprompt.measures.base import Measure
from largeprompt.measures.numerics.cumulants import Cumulants
from largeprompt.measures.placed import TensorMeasure


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Wrapped(TensorMeasure):
    """A measure made from another one, ``base``."""

    base: Measure

    @property
    def _like(self) -> Tensor:
        return self.base._like

    @property
    def relative_precision(self) -> bool:
        return self.base.relative_precision

    def _require_law(self) -> None:
        self.base._require_law()

    def _details(self) -> str:
        return f", base={self.base!r}"


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Tilted(Wrapped):
    """Exponential tilt e^{u·x - Λ(u)} μ(dx) of ``base``, with cgf Λ(u + v) - Λ(u).

    Made by :meth:`Measure.tilt`.
    """

    natural: Tensor  # u, shape (..., d)

    @property
    def dim(self) -> int:
        return self.base.dim

    @property
    def batch_shape(self) -> torch.Size:
        return torch.Size(np.broadcast_shapes(self.base.batch_shape, self.natural.shape[:-1]))

    @property
    def support_radius(self) -> float:
        return self.base.support_radius

    def _check_domain(self, u: Tensor) -> None:
        self.base._check_domain(self.natural + u)

    def _cgf(self, u: Tensor) -> Tensor:
        return self.base._cgf(self.natural + u) - self.base._cgf(self.natural)

    def _tilted_mean(self, u: Tensor) -> Tensor:
        return self.base._tilted_mean(self.natural + u)

    def _tilted_covariance(self, u: Tensor) -> Tensor:
        return self.base._tilted_covariance(self.natural + u)

    def _scales(self, u: Tensor) -> tuple[Tensor, Tensor]:
        return self.base._scales(self.natural + u)

    def _complex_cumulants(self, w: Tensor, order: int = 2) -> tuple[Tensor, ...]:
        value, *others = self.base._complex_cumulants(self.natural + w, order)
        return value - self.base._cgf(self.natural), *others

    def _in_domain(self, u: Tensor) -> Tensor:
        return self.base._in_domain(self.natural + u)

    def _tilt(self, u: Tensor) -> Measure:
        return self.base._tilt(self.natural + u)

    def _tilted_norm_moment4(self, u: Tensor, center: Tensor, V: Tensor | None = None) -> Tensor:
        return self.base._tilted_norm_moment4(self.natural + u, center, V)

    def _directional_cumulants(self, directions: Tensor, u: Tensor) -> Cumulants:
        return self.base._directional_cumulants(directions, self.natural + u)

    def _sample(self, n: int, generator: torch.Generator) -> Tensor:
        return self.base._sample_tilted(self.natural, n, generator)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class AffineImage(Wrapped):
    """Law of A x + b for x from ``base``, with cgf Λ_base(A^T v) + b·v.

    Made by :meth:`Measure.map`.
    """

    matrix: Tensor  # A, shape (o, d)
    offset: Tensor  # b, shape (o,)

    @property
    def dim(self) -> int:
        return self.matrix.shape[0]

    @property
    def batch_shape(self) -> torch.Size:
        return self.base.batch_shape

    @property
    def support_radius(self) -> float:
        size = float(torch.linalg.matrix_norm(self.matrix, 2))
        return (size * self.base.support_radius if size else 0.0) + float(self.offset.norm())

    def _check_domain(self, u: Tensor) -> None:
        self.base._check_domain(u @ self.matrix)

    def _cgf(self, u: Tensor) -> Tensor:
        return self.base._cgf(u @ self.matrix) + u @ self.offset

    def _tilted_mean(self, u: Tensor) -> Tensor:
        return self.base._tilted_mean(u @ self.matrix) @ self.matrix.mT + self.offset

    def _tilted_covariance(self, u: Tensor) -> Tensor:
        return self.matrix @ self.base._tilted_covariance(u @ self.matrix) @ self.matrix.mT

    def _scales(self, u: Tensor) -> tuple[Tensor, Tensor]:
        size, spread = self.base._scales(u @ self.matrix)
        return size @ self.matrix.abs().mT + self.offset.abs(), spread @ self.matrix.abs().mT

    def _complex_cumulants(self, w: Tensor, order: int = 2) -> tuple[Tensor, ...]:
        matrix = self.matrix.to(w.dtype)
        value, *others = self.base._complex_cumulants(w @ matrix, min(order, 2))
        value = value + w @ self.offset.to(w.dtype)
        if not others:
            return (value,)
        mean, second = others
        dense = torch.diag_embed(second) if second.dim() == 2 else second
        return value, mean @ matrix.mT + self.offset, matrix @ dense @ matrix.mT

    def _in_domain(self, u: Tensor) -> Tensor:
        return self.base._in_domain(u @ self.matrix)

    def _tilt(self, u: Tensor) -> Measure:
        return AffineImage(self.base._tilt(u @ self.matrix), self.matrix, self.offset)

    def _map(self, matrix: Tensor, offset: Tensor) -> Measure:
        return AffineImage(self.base, matrix @ self.matrix, matrix @ self.offset + offset)

    def _directional_cumulants(self, directions: Tensor, u: Tensor) -> Cumulants:
        k1, k2, k3, k4 = self.base._directional_cumulants(directions @ self.matrix, u @ self.matrix)
        return k1 + (directions @ self.offset).reshape(-1, *(1,) * (k1.dim() - 1)), k2, k3, k4

    def _sample(self, n: int, generator: torch.Generator) -> Tensor:
        return self.base._sample(n, generator) @ self.matrix.mT + self.offset
