"""Gaussian tokens: the law for which softmax attention in the limit is an affine map (claim C2)."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures.placed import TensorMeasure
from largeprompt.validation import ArrayLike


def square_root(covariance: Tensor) -> Tensor:
    """Return R with R R^T = covariance: Cholesky, or by eigenvectors where it is singular."""
    factor: Tensor
    # LAPACK has no half precision
    wide = covariance.float() if covariance.dtype.itemsize == 2 else covariance
    factor, info = torch.linalg.cholesky_ex(wide)
    if bool((info != 0).any()):
        values, vectors = torch.linalg.eigh(wide)
        factor = vectors * values.clamp_min(0).sqrt().unsqueeze(-2)
    return factor.to(covariance.dtype)


def gaussian_norm_moment4(offset: Tensor, covariance: Tensor, V: Tensor | None = None) -> Tensor:
    """E‖x‖²‖Vx‖² = (tr Γ + ‖δ‖²)(tr VΓV^T + ‖Vδ‖²) + 2‖VΓ‖² + 4 (Vδ)·(VΓδ) for x ~ N(δ, Γ)."""
    moved, read = (covariance @ offset.unsqueeze(-1)).squeeze(-1), covariance
    size = own = covariance.diagonal(dim1=-2, dim2=-1).sum(-1) + offset.square().sum(-1)
    if V is not None:
        offset, moved, read = offset @ V.mT, moved @ V.mT, V @ covariance
        own = (read * V).sum(dim=(-2, -1)) + offset.square().sum(-1)
    return size * own + 2 * read.square().sum(dim=(-2, -1)) + 4 * (offset * moved).sum(-1)


@dataclasses.dataclass(frozen=True, eq=False, repr=False, init=False)
class Gaussian(TensorMeasure):
    """N(m, Γ), singular Γ included; ``Gaussian(dim=3)`` is the standard one.

    Λ(u) = u·m + u^T Γ u/2 and the tilt by u is N(m + Γu, Γ), formula (tilt.5) of
    docs/mathematics/tilting.md.

    Parameters
    ----------
    mean
        m, shape (..., d); 0 when left out.
    covariance
        Γ, symmetric positive semidefinite, shape (..., d, d); the identity when left out.
    dim
        Dimension d, needed where neither is given.

    Examples
    --------
    >>> mu = lp.Gaussian([1.0, 0.0], [[1.0, 0.5], [0.5, 1.0]])
    >>> mu.tilt([2.0, 0.0]).mean
    tensor([3., 1.], dtype=torch.float64)
    """

    relative_precision = True
    mean: Tensor = dataclasses.field()
    covariance: Tensor = dataclasses.field()

    def __init__(
        self,
        mean: ArrayLike | None = None,
        covariance: ArrayLike | None = None,
        *,
        dim: int | None = None,
    ) -> None:
        given = {"mean": mean, "covariance": covariance}
        given = {name: value for name, value in given.items() if value is not None}
        if not given and dim is None:
            raise InvalidArgumentError("dim", "nothing", "a mean, a covariance or a dimension")
        found = dict(zip(given, validation.tensors(**given), strict=True))
        like = next(iter(found.values()), torch.zeros(1, dtype=torch.float64))
        d = like.shape[-1] if dim is None and like.dim() else validation.integer("dim", dim or 1)
        mean = found.get("mean", like.new_zeros(d))
        validation.last_dimensions("mean", mean, ("d",) if dim is None else (d,))
        covariance = found.get("covariance", torch.eye(d).to(like))
        meaning = f", for a mean in R^{mean.shape[-1]}"
        validation.last_dimensions("covariance", covariance, 2 * mean.shape[-1:], meaning)
        validation.covariance("covariance", covariance)
        batch = validation.broadcast("mean and covariance", mean.shape[:-1], covariance.shape[:-2])
        validation.store(self, mean=mean.expand(*batch, -1))
        validation.store(self, covariance=covariance.expand(*batch, -1, -1))

    @property
    def dim(self) -> int:
        return self.mean.shape[-1]

    @property
    def batch_shape(self) -> torch.Size:
        return self.mean.shape[:-1]

    @property
    def _like(self) -> Tensor:
        return self.mean

    @property
    def _compact_covariance(self) -> Tensor:
        """Γ, as one matrix where all members of the batch share it."""
        if self.covariance.numel() and not any(self.covariance.stride()[:-2]):
            return self.covariance[(0,) * len(self.batch_shape)]
        return self.covariance

    @functools.cached_property
    @torch.no_grad()
    def _root(self) -> Tensor:
        """R with RR^T = Γ, without a gradient: for the samplers, which have none and ask often."""
        return square_root(self.covariance)

    def shift(self, u: Tensor) -> Tensor:
        """Γu, by which the tilt moves the mean, shape (..., d)."""
        covariance = self._compact_covariance.to(u.dtype)
        if covariance.dim() == 2:
            return u @ covariance.mT
        return (covariance @ u.unsqueeze(-1)).squeeze(-1)

    def _cgf(self, u: Tensor) -> Tensor:
        return (u * (self.mean + self.shift(u) / 2)).sum(-1)

    def _tilted_mean(self, u: Tensor) -> Tensor:
        return self.mean + self.shift(u)

    def _tilted_covariance(self, u: Tensor) -> Tensor:
        shape = np.broadcast_shapes(u.shape[:-1], self.batch_shape)
        return self.covariance.to(u.dtype).expand(*shape, self.dim, self.dim)

    def _complex_cumulants(self, w: Tensor, order: int = 2) -> tuple[Tensor, ...]:
        found = (f(w) for f in (self._cgf, self._tilted_mean, self._tilted_covariance)[: order + 1])
        return tuple(found)

    def _tilt(self, u: Tensor) -> Gaussian:
        mean = self._tilted_mean(u)
        return self._trusted(mean, self.covariance.expand(*mean.shape, self.dim))

    def _map(self, matrix: Tensor, offset: Tensor) -> Gaussian:
        mean, covariance = self.mean @ matrix.mT + offset, matrix @ self.covariance @ matrix.mT
        return self._trusted(*(validation.in_range("matrix", each) for each in (mean, covariance)))

    def _tilted_norm_moment4(self, u: Tensor, center: Tensor, V: Tensor | None = None) -> Tensor:
        return gaussian_norm_moment4(self._tilted_mean(u) - center, self.covariance, V)

    def _sample(self, n: int, generator: torch.Generator) -> Tensor:
        shape = (*self.batch_shape, n, self.dim)
        noise = torch.randn(shape, generator=generator, dtype=self.dtype, device=self.device)
        return self.mean.unsqueeze(-2) + noise @ square_root(self._compact_covariance).mT
