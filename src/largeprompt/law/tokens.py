"""Moments of a centered token y = x - T at the nodes of a quadrature, up to the fourth, whatever
kind of node it is.

A node fixes the score, or one complex tilt; y still varies given the node, with mean m, covariance
C and cumulants κ3, κ4, which are complex at complex tilts. For symmetric matrices A and B,

    E y^T B y = tr BC + m^T B m, E[y · y^T B y] = m E[y^T B y] + 2CBm + κ3:B, E[y^T A y · y^T B y] =
    E[y^T A y] E[y^T B y] + 2 tr ACBC + 4 m^T A C B m + 2 m^T A κ3:B + 2 m^T B κ3:A + κ4::AB.
"""

import abc
import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Numbers = Any  # an array, real or complex


def is_identity(B: Array) -> bool:
    """Whether a matrix is the identity, which needs no product."""
    square = B.shape[0] == B.shape[1]
    return square and bool((B.diagonal() == 1).all()) and np.count_nonzero(B) == len(B)


@dataclasses.dataclass(frozen=True)
class TokenMoments(abc.ABC):
    """What the nodes know of y; ``mean`` has the shape (node, d)."""

    mean: Numbers

    @abc.abstractmethod
    def trace(self, B: Array) -> Numbers:
        """tr BC of each node."""

    @abc.abstractmethod
    def trace_pair(self, A: Array, B: Array) -> Numbers:
        """tr ACBC of each node."""

    @abc.abstractmethod
    def spread_along(self, vectors: Numbers) -> Numbers:
        """C v for one vector v of each node, shape (node, d)."""

    @abc.abstractmethod
    def total_spread(self, weights: Numbers) -> Numbers:
        """Σ weights C over the nodes: (row, d, d) for weights (row, node)."""

    def third(self, B: Array) -> Numbers:
        """κ3:B of each node, shape (node, d)."""
        return np.zeros_like(self.mean)

    def fourth(self, A: Array, B: Array) -> Numbers:
        """κ4::AB of each node."""
        return np.zeros_like(self.mean[:, 0])

    @property
    def complete(self) -> bool:
        """Whether third and fourth cumulants are known."""
        return True

    def squared(self, B: Array) -> Numbers:
        """E y^T B y of each node."""
        if is_identity(B):
            return self.trace(B) + (self.mean**2).sum(-1)
        moved = (
            self.mean.real @ B + 1j * (self.mean.imag @ B)
            if np.iscomplexobj(self.mean)
            else self.mean @ B
        )
        return self.trace(B) + (moved * self.mean).sum(-1)

    def cubed(self, B: Array) -> Numbers:
        """E[y · y^T B y] of each node, shape (node, d)."""
        return (
            self.mean * self.squared(B)[:, None]
            + 2 * self.spread_along(self.mean @ B)
            + self.third(B)
        )

    def squared_twice(self, A: Array, B: Array) -> Numbers:
        """E[y^T A y · y^T B y] of each node."""
        a, b = self.mean @ A, self.mean @ B
        crossed = 4 * (a * self.spread_along(b)).sum(-1) + 2 * (
            a * self.third(B) + b * self.third(A)
        ).sum(-1)
        return (
            self.squared(A) * self.squared(B)
            + 2 * self.trace_pair(A, B)
            + crossed
            + self.fourth(A, B)
        )

    def total_second(self, weights: Numbers) -> Array:
        """Real part of Σ weights E yy^T over the nodes: (row, d, d) for weights (row, node)."""
        weighted = weights[:, :, None] * self.mean
        outer = weighted.real.swapaxes(1, 2) @ self.mean.real
        if np.iscomplexobj(self.mean):  # two real products are half of a complex one
            outer -= weighted.imag.swapaxes(1, 2) @ self.mean.imag
        return np.asarray(outer + self.total_spread(weights).real)


@dataclasses.dataclass(frozen=True)
class Independent(TokenMoments):
    """Independent coordinates: variances and higher cumulants of each, shape (node, d)."""

    variance: Numbers
    skew: Numbers | None = None
    excess: Numbers | None = None

    @property
    def complete(self) -> bool:
        return self.skew is not None and self.excess is not None

    def trace(self, B: Array) -> Numbers:
        return self.variance @ np.diagonal(B)

    def trace_pair(self, A: Array, B: Array) -> Numbers:
        return ((self.variance @ (A * B)) * self.variance).sum(-1)

    def spread_along(self, vectors: Numbers) -> Numbers:
        return self.variance * vectors

    def total_spread(self, weights: Numbers) -> Numbers:
        return (weights @ self.variance)[:, :, None] * np.eye(self.mean.shape[-1])

    def third(self, B: Array) -> Numbers:
        assert self.skew is not None
        return self.skew * np.diagonal(B)

    def fourth(self, A: Array, B: Array) -> Numbers:
        assert self.excess is not None
        return self.excess @ (np.diagonal(A) * np.diagonal(B))


@dataclasses.dataclass(frozen=True)
class Common(TokenMoments):
    """Covariances that are multiples of one matrix, shape (d, d), by the factors ``scale``, shape
    (node,); none for plain atoms.

    ``sphere`` is for tokens uniform on a sphere rather than Gaussian given the node: κ4::AB is its
    entry times tr CA tr CB + 2 tr CACB.
    """

    spread: Array | None = None
    scale: Array | None = None
    sphere: Array | None = None

    @property
    def _shape(self) -> tuple[Array, Array]:
        dim = self.mean.shape[-1]
        spread = np.zeros((dim, dim)) if self.spread is None else self.spread
        return spread, np.ones(len(self.mean)) if self.scale is None else self.scale

    def trace(self, B: Array) -> Numbers:
        spread, scale = self._shape
        return scale * (B * spread).sum()

    def trace_pair(self, A: Array, B: Array) -> Numbers:
        spread, scale = self._shape
        return scale**2 * ((A @ spread) * (B @ spread).T).sum()

    def spread_along(self, vectors: Numbers) -> Numbers:
        spread, scale = self._shape
        return scale[:, None] * (vectors @ spread)

    def total_spread(self, weights: Numbers) -> Numbers:
        spread, scale = self._shape
        return (weights @ scale)[:, None, None] * spread

    def fourth(self, A: Array, B: Array) -> Numbers:
        if self.sphere is None or self.spread is None:
            return super().fourth(A, B)
        a, b = A @ self.spread, B @ self.spread
        return self.sphere * (np.trace(a) * np.trace(b) + 2 * (a * b.T).sum())


@dataclasses.dataclass(frozen=True)
class Dense(TokenMoments):
    """A covariance for each node, (node, d, d), and where known cumulants of order 3 and 4."""

    covariance: Numbers
    skew: Numbers = None  # (node, d, d, d)
    excess: Numbers = None  # (node, d, d, d, d)

    @property
    def complete(self) -> bool:
        return self.excess is not None

    def third(self, B: Array) -> Numbers:
        return np.einsum("nijk,jk->ni", self.skew, B)

    def fourth(self, A: Array, B: Array) -> Numbers:
        return np.einsum("nijkl,ij,kl->n", self.excess, A, B, optimize=True)

    def trace(self, B: Array) -> Numbers:
        return np.einsum("nij,ij->n", self.covariance, B)

    def trace_pair(self, A: Array, B: Array) -> Numbers:
        return np.einsum("nij,nji->n", A @ self.covariance, B @ self.covariance)

    def spread_along(self, vectors: Numbers) -> Numbers:
        return np.einsum("...ij,...j->...i", self.covariance, vectors)

    def total_spread(self, weights: Numbers) -> Numbers:
        return np.einsum("rn,nij->rij", weights, self.covariance)
