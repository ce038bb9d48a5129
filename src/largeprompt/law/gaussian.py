"""The exact law of attention over L Gaussian tokens, by formula (law.2) of docs/mathematics/finite_prompt.md."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from largeprompt.law.statistics import collision_moments, jacobian_statistics
from largeprompt.law.table import FROZEN, WeightTables
from largeprompt.measures import Gaussian

MANY = 256  # queries from which on a table of the moments, good to 1e-12, costs less than the moments themselves


def trace(matrix: Tensor) -> Tensor:
    """Trace of (..., n, n) matrices, shape (...)."""
    return matrix.diagonal(dim1=-2, dim2=-1).sum(-1)


def _scores(mu: Gaussian, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Γu, the standard deviation σ = √(u^T Γ u) of the scores, with derivative 0 at σ = 0, and their variance."""
    shift = mu.shift(u)
    variance = (u * shift).sum(-1)
    positive = variance > 0
    return shift, torch.where(positive, torch.where(positive, variance, 1.0).sqrt(), 0.0), variance


def _moments(sigma: Tensor, variance: Tensor, lengths: Sequence[float]) -> tuple[Tensor, Tensor]:
    """E Y and E[Y - 6 W3 + 6 Y²], each (length, ...): by quadrature for few queries, from a table of them for many."""
    if sigma.numel() < MANY or not float(variance.detach().max()) <= FROZEN:
        found = [collision_moments(length, sigma, variance) for length in lengths]
        return torch.stack([one.collision for one in found]), torch.stack([one.along for one in found])
    finite = [i for i, length in enumerate(lengths) if math.isfinite(length)]
    q = variance.to(torch.float64).clamp_min(0.0)
    y = along = q.new_zeros(len(lengths), *q.shape)
    if finite:
        tables = WeightTables.reaching([lengths[i] for i in finite], float(q.detach().max()))
        f, h = tables(q.expand(len(finite), *q.shape))
        places = torch.tensor(finite, device=q.device)
        y, along = y.index_copy(0, places, f), along.index_copy(0, places, f - 6 * h)
    return y.to(sigma.dtype), along.to(sigma.dtype)


@dataclasses.dataclass(frozen=True)
class OutputLaws:
    """Law of the output for each length: lengths lead, then heads and queries.

    bias = -E[Y] VΓu;  Cov T_L = E[Y] VΓV^T + (a - E[Y]²) VΓuu^TΓV^T;  mse = E[Y] tr VΓV^T + a ‖VΓu‖²,  a = E[Y - 6 W3 + 6 Y²]:
    formulas (law.8) to (law.10) of docs/mathematics/finite_prompt.md.
    """

    mu: Gaussian
    values: Tensor
    shift: Tensor  # Γu
    collision: Tensor  # E Y
    along: Tensor  # a

    @classmethod
    def of(cls, mu: Gaussian, u: Tensor, values: Tensor, lengths: Sequence[float]) -> OutputLaws:
        """Laws for tilts u and each of several lengths."""
        shift, sigma, variance = _scores(mu, u)
        more = (1,) * max(0, values.dim() - 2 - sigma.dim())  # heads that V has and U has not
        y, along = (found.reshape(len(lengths), *more, *sigma.shape) for found in _moments(sigma, variance, lengths))
        return cls(mu, values, shift, y, along)

    @property
    def _read(self) -> Tensor:
        """VΓu."""
        return (self.values @ self.shift.unsqueeze(-1)).squeeze(-1)

    @property
    def bias(self) -> Tensor:
        """E T_L - T, shape (length, ..., o)."""
        return -self.collision.unsqueeze(-1) * self._read

    def covariance(self) -> Tensor:
        """Cov T_L, shape (length, ..., o, o)."""
        read, y = self._read, self.collision[..., None, None]
        spread = self.values @ self.mu.covariance @ self.values.mT
        return y * spread + (self.along[..., None, None] - y**2) * (read.unsqueeze(-1) * read.unsqueeze(-2))

    def errors(self) -> Tensor:
        """E‖T_L - T‖², shape (length, ...)."""
        spread = ((self.values @ self.mu.covariance) * self.values).sum(dim=(-2, -1))
        return self.collision * spread + self.along * self._read.square().sum(-1)

    def errors_without_values(self) -> Tensor:
        """The same for V = I."""
        return self.collision * trace(self.mu.covariance) + self.along * self.shift.square().sum(-1)


def jacobian_error(mu: Gaussian, u: Tensor, values: Tensor, length: float) -> Tensor:
    """E‖V(C_L - Γ)‖_F², C_L the softmax-weighted covariance of tokens: formula (law.13) of docs/mathematics/finite_prompt.md."""
    shift, sigma, _ = _scores(mu, u)
    statistics = jacobian_statistics(length, sigma)
    safe = torch.where(sigma > 0, sigma, 1.0)
    e = torch.where((sigma > 0).unsqueeze(-1), shift / safe.unsqueeze(-1), 0.0)
    rest = mu.covariance - e.unsqueeze(-1) * e.unsqueeze(-2)  # G
    gram = values.mT @ values  # B
    read_e = (values @ e.unsqueeze(-1)).squeeze(-1)
    weighted = gram @ rest  # BG
    along, across = read_e.square().sum(-1), e.square().sum(-1)
    mixed = torch.einsum("...i,...ij,...j->...", e, weighted, e)
    square = (weighted * rest.mT).sum(dim=(-2, -1))  # tr BG²
    return (
        statistics.spread * along * across
        + statistics.cross * (along * trace(rest) + across * trace(weighted) + 2 * mixed)
        - 2 * statistics.mixed * mixed
        + statistics.collision2 * square
        + statistics.pairs * (trace(weighted) * trace(rest) + square)
    )
