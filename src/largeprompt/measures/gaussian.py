"""Gaussian tokens: the law for which softmax attention in the limit is an affine map (claim C2)."""

from __future__ import annotations

import dataclasses
from typing import Self

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.measures.base import Measure


def square_root(covariance: Tensor) -> Tensor:
    """Return R with R R^T = covariance: Cholesky where it exists, else from the eigenvectors (singular matrices)."""
    factor: Tensor
    factor, info = torch.linalg.cholesky_ex(covariance)
    if not bool((info != 0).any()):
        return factor
    values, vectors = torch.linalg.eigh(covariance)
    scaled: Tensor = vectors * values.clamp_min(0).sqrt().unsqueeze(-2)
    return scaled


def gaussian_norm_moment4(offset: Tensor, covariance: Tensor) -> Tensor:
    """E‖x‖⁴ = (tr Γ + ‖δ‖²)² + 2 tr Γ² + 4 δ^T Γ δ for x ~ N(δ, Γ)."""
    trace = covariance.diagonal(dim1=-2, dim2=-1).sum(-1)
    quadratic = torch.einsum("...i,...ij,...j->...", offset, covariance, offset)
    return (trace + offset.square().sum(-1)).square() + 2 * covariance.square().sum(dim=(-2, -1)) + 4 * quadratic


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Gaussian(Measure):
    """N(m, Γ), singular Γ included.

    Λ(u) = u·m + u^T Γ u/2 and the tilt by u is N(m + Γu, Γ): tilting only moves the mean.

    Parameters
    ----------
    mean
        m, shape (..., d).
    covariance
        Γ, symmetric positive semidefinite, shape (..., d, d).

    Examples
    --------
    >>> mu = lp.Gaussian([1.0, 0.0], [[1.0, 0.5], [0.5, 1.0]])
    >>> mu.tilt([2.0, 0.0]).mean
    tensor([3., 1.], dtype=torch.float64)
    """

    mean: Tensor = dataclasses.field()
    covariance: Tensor = dataclasses.field()

    def __post_init__(self) -> None:
        mean = validation.last_dimensions("mean", validation.tensor("mean", self.mean), ("d",))
        covariance = validation.tensor("covariance", self.covariance, like=mean)
        dim = mean.shape[-1]
        validation.last_dimensions("covariance", covariance, (dim, dim), f", for a mean in R^{dim}")
        validation.covariance("covariance", covariance)
        batch = validation.broadcast("mean and covariance", mean.shape[:-1], covariance.shape[:-2])
        object.__setattr__(self, "mean", mean.expand(*batch, dim))
        object.__setattr__(self, "covariance", covariance.expand(*batch, dim, dim))

    @classmethod
    def _trusted(cls, mean: Tensor, covariance: Tensor) -> Self:
        """Skip the checks for parameters that come from a checked measure."""
        self = object.__new__(cls)
        dim = mean.shape[-1]
        batch = torch.broadcast_shapes(mean.shape[:-1], covariance.shape[:-2])
        object.__setattr__(self, "mean", mean.expand(*batch, dim))
        object.__setattr__(self, "covariance", covariance.expand(*batch, dim, dim))
        return self

    @property
    def dim(self) -> int:
        return self.mean.shape[-1]

    @property
    def batch_shape(self) -> torch.Size:
        return self.mean.shape[:-1]

    @property
    def dtype(self) -> torch.dtype:
        return self.mean.dtype

    @property
    def device(self) -> torch.device:
        return self.mean.device

    @property
    def _compact_covariance(self) -> Tensor:
        """Γ without the batch dimensions along which it was only repeated, as one matrix if all members share it."""
        if self.covariance.numel() and not any(self.covariance.stride()[:-2]):
            return self.covariance[(0,) * len(self.batch_shape)]
        return self.covariance

    def shift(self, u: Tensor) -> Tensor:
        """Γu, by which the tilt moves the mean, shape (..., d)."""
        covariance = self._compact_covariance
        return u @ covariance.mT if covariance.dim() == 2 else (covariance @ u.unsqueeze(-1)).squeeze(-1)

    def cgf(self, u: Tensor) -> Tensor:
        u = self._tilts(u)
        return (u * (self.mean + self.shift(u) / 2)).sum(-1)

    def tilted_mean(self, u: Tensor) -> Tensor:
        return self.mean + self.shift(self._tilts(u))

    def tilted_covariance(self, u: Tensor) -> Tensor:
        shape = torch.broadcast_shapes(self._tilts(u).shape[:-1], self.batch_shape)
        return self.covariance.expand(*shape, self.dim, self.dim)

    def tilt(self, u: Tensor) -> Gaussian:
        return self._trusted(self.tilted_mean(u), self.covariance)

    def map(self, matrix: Tensor, offset: Tensor | None = None) -> Gaussian:
        matrix, offset = self._affine(matrix, offset)
        return self._trusted(self.mean @ matrix.mT + offset, matrix @ self.covariance @ matrix.mT)

    def tilted_norm_moment4(self, u: Tensor, center: Tensor) -> Tensor:
        return gaussian_norm_moment4(self.tilted_mean(u) - self._center(center), self.covariance)

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        n = self._size(n, generator)
        shape = (*self.batch_shape, n, self.dim)
        noise = torch.randn(shape, generator=generator, dtype=self.dtype, device=self.device)
        return self.mean.unsqueeze(-2) + noise @ square_root(self._compact_covariance).mT

    def sample_tilted(self, u: Tensor, n: int, generator: torch.Generator) -> Tensor:
        return self.tilt(u).sample(n, generator)
