"""Tilts and affine images of measures whose family is not closed under them: wrappers that change the argument of the cgf."""

import dataclasses

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.display import notation
from largeprompt.measures.base import Measure
from largeprompt.measures.numerics.cumulants import Cumulants
from largeprompt.measures.placed import TensorMeasure
from largeprompt.validation import Randomness


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Wrapped(TensorMeasure):
    """A measure made from another one, ``base``."""

    base: Measure

    @property
    def _like(self) -> Tensor:
        return self.base._like

    def _details(self) -> str:
        return f", base={self.base!r}"


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Tilted(Wrapped):
    """Exponential tilt e^{u·x - Λ(u)} μ(dx) of ``base``, with cgf Λ(u + v) - Λ(u); made by :meth:`Measure.tilt`."""

    natural: Tensor  # u, shape (..., d)

    def _formula(self) -> str:
        return f"{self.base._formula()} tilted by {notation.vector(self.natural, 'u')}"

    def __post_init__(self) -> None:
        validation.instance("base", self.base, Measure, "a Measure")
        validation.store(self, natural=self.base._tilts(self.natural))
        self.base._finite_cgf(self.natural)  # raises outside the domain

    @property
    def dim(self) -> int:
        return self.base.dim

    @property
    def batch_shape(self) -> torch.Size:
        return torch.Size(np.broadcast_shapes(self.base.batch_shape, self.natural.shape[:-1]))

    @property
    def support_radius(self) -> float:
        return self.base.support_radius

    @property
    def relative_precision(self) -> bool:
        return self.base.relative_precision

    def _total(self, u: Tensor | None) -> Tensor:
        """Tilt of the base that is the tilt of this measure by u."""
        return self.natural if u is None else self.natural + self._tilts(u)

    def cgf(self, u: Tensor) -> Tensor:
        return self.base.cgf(self._total(u)) - self.base.cgf(self.natural)

    def tilted_mean(self, u: Tensor) -> Tensor:
        return self.base.tilted_mean(self._total(u))

    def tilted_covariance(self, u: Tensor) -> Tensor:
        return self.base.tilted_covariance(self._total(u))

    def _scales(self, u: Tensor) -> tuple[Tensor, Tensor]:
        return self.base._scales(self._total(u))

    def complex_cumulants(self, w: Tensor, order: int = 2) -> tuple[Tensor, ...]:
        value, *others = self.base.complex_cumulants(self.natural + w, order)
        return value - self.base.cgf(self.natural), *others

    def tilt(self, u: Tensor) -> Measure:
        return self.base.tilt(self._total(u))

    def tilted_norm_moment4(self, u: Tensor, center: Tensor, V: Tensor | None = None) -> Tensor:
        return self.base.tilted_norm_moment4(self._total(u), center, V)

    def directional_cumulants(self, directions: Tensor, u: Tensor | None = None) -> Cumulants:
        return self.base.directional_cumulants(directions, self._total(u))

    def sample(self, n: int, generator: Randomness | None = None) -> Tensor:
        return self.base.sample_tilted(self.natural, *self._drawing(n, generator))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class AffineImage(Wrapped):
    """Law of A x + b for x from ``base``, with cgf Λ_base(A^T v) + b·v; made by :meth:`Measure.map`."""

    matrix: Tensor  # A, shape (o, d)
    offset: Tensor  # b, shape (o,)

    def __post_init__(self) -> None:
        validation.instance("base", self.base, Measure, "a Measure")
        matrix, offset = self.base._affine(self.matrix, self.offset)
        validation.store(self, matrix=matrix, offset=offset)

    def _formula(self) -> str:
        matrix, offset = notation.matrix(self.matrix, "A"), notation.vector(self.offset, "b")
        return f"law of {matrix} x{'' if offset == '0' else f' + {offset}'}, x ~ {self.base._formula()},"

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

    @property
    def relative_precision(self) -> bool:
        return self.base.relative_precision

    def cgf(self, u: Tensor) -> Tensor:
        u = self._tilts(u)
        return self.base.cgf(u @ self.matrix) + u @ self.offset

    def tilted_mean(self, u: Tensor) -> Tensor:
        return self.base.tilted_mean(self._tilts(u) @ self.matrix) @ self.matrix.mT + self.offset

    def tilted_covariance(self, u: Tensor) -> Tensor:
        return self.matrix @ self.base.tilted_covariance(self._tilts(u) @ self.matrix) @ self.matrix.mT

    def _scales(self, u: Tensor) -> tuple[Tensor, Tensor]:
        size, spread = self.base._scales(self._tilts(u) @ self.matrix)
        return size @ self.matrix.abs().mT + self.offset.abs(), spread @ self.matrix.abs().mT

    def complex_cumulants(self, w: Tensor, order: int = 2) -> tuple[Tensor, ...]:
        matrix = self.matrix.to(w.dtype)
        value, *others = self.base.complex_cumulants(w @ matrix, min(order, 2))
        value = value + w @ self.offset.to(w.dtype)
        if not others:
            return (value,)
        mean, second = others
        dense = torch.diag_embed(second) if second.dim() == 2 else second
        return value, mean @ matrix.mT + self.offset, matrix @ dense @ matrix.mT

    def tilt(self, u: Tensor) -> Measure:
        return AffineImage(self.base.tilt(self._tilts(u) @ self.matrix), self.matrix, self.offset)

    def map(self, matrix: Tensor, offset: Tensor | None = None) -> Measure:
        matrix, offset = self._affine(matrix, offset)
        return AffineImage(self.base, matrix @ self.matrix, matrix @ self.offset + offset)

    def directional_cumulants(self, directions: Tensor, u: Tensor | None = None) -> Cumulants:
        a = self._directions(directions)
        inner = None if u is None else self._tilts(u) @ self.matrix
        k1, k2, k3, k4 = self.base.directional_cumulants(a @ self.matrix, inner)
        return k1 + (a @ self.offset).reshape(-1, *(1,) * (k1.dim() - 1)), k2, k3, k4

    def sample(self, n: int, generator: Randomness | None = None) -> Tensor:
        return self.base.sample(*self._drawing(n, generator)) @ self.matrix.mT + self.offset
