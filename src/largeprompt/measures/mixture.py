"""Mixtures of Gaussians: the tilt moves every component and re-weights them."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.measures.gaussian import gaussian_norm_moment4, square_root
from largeprompt.measures.numerics.special import log_sum, weighted_softmax
from largeprompt.measures.placed import TensorMeasure, random_index
from largeprompt.measures.score_nodes import NORMAL_REACH, SCORE_STEP, ScoreNodes, check_scores
from largeprompt.validation import ArrayLike


@dataclasses.dataclass(frozen=True, eq=False, repr=False, init=False)
class GaussianMixture(TensorMeasure):
    """Σ_k π_k N(m_k, Γ_k), singular Γ_k included.

    Λ(u) = log Σ_k π_k e^{Λ_k(u)}; component k tilts by itself, with weight ∝ π_k e^{Λ_k(u)}:
    formula (tilt.7) of docs/mathematics/tilting.md.

    Parameters
    ----------
    weights
        π, nonnegative and summing to one, shape (..., k).
    means
        m_k, shape (..., k, d).
    covariances
        Γ_k, symmetric positive semidefinite, shape (..., k, d, d).

    Examples
    --------
    Two clusters at -1 and +1; a strong tilt reads one of them:

    >>> mu = lp.GaussianMixture([0.5, 0.5], [[-1.0], [1.0]], [[[0.01]], [[0.01]]])
    >>> mu.tilted_mean([[0.0], [10.0]])
    tensor([[0.0000],
            [1.1000]], dtype=torch.float64)
    """

    relative_precision = True
    weights: Tensor
    means: Tensor
    covariances: Tensor

    def __init__(self, weights: ArrayLike, means: ArrayLike, covariances: ArrayLike) -> None:
        given = {"weights": weights, "means": means, "covariances": covariances}
        weights, means, covariances = found = validation.tensors(**given)
        count, dim = validation.last_dimensions("means", means, ("k", "d")).shape[-2:]
        each, of = f", one for each of the {count} rows of means", f"(..., {count}, {dim})"
        validation.last_dimensions("weights", weights, (count,), each)
        shape = (count, dim, dim)
        validation.last_dimensions("covariances", covariances, shape, f", for means of shape {of}")
        batches = (value.shape[:-own] for own, value in enumerate(found, 1))
        validation.broadcast("weights, means and covariances", *batches)
        validation.weights("weights", weights)
        validation.covariance("covariances", covariances)
        validation.store(self, weights=weights, means=means, covariances=covariances)

    @property
    def dim(self) -> int:
        return self.means.shape[-1]

    @property
    def components(self) -> int:
        """Number of components k."""
        return self.means.shape[-2]

    @property
    def batch_shape(self) -> torch.Size:
        batches = self.weights.shape[:-1], self.means.shape[:-2], self.covariances.shape[:-3]
        return torch.Size(np.broadcast_shapes(*batches))

    @property
    def _like(self) -> Tensor:
        return self.means

    @functools.cached_property
    @torch.no_grad()
    def _roots(self) -> Tensor:
        """R_k with R_k R_k^T = Γ_k, without a gradient, for the samplers."""
        return square_root(self.covariances)

    def _tilted_components(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Λ_k(u), shape (..., k), and the tilted component means m_k + Γ_k u, shape (..., k, d)."""
        v = u.unsqueeze(-2)  # (..., 1, d)
        shift = torch.einsum("...kij,...kj->...ki", self.covariances.to(u.dtype), v)
        cgf = (v * (self.means + shift / 2)).sum(-1)
        return cgf if u.is_complex() else validation.in_range("u", cgf), self.means + shift

    def _cgf(self, u: Tensor) -> Tensor:
        return log_sum(self.weights, self._tilted_components(u)[0])

    def _tilted_mean(self, u: Tensor) -> Tensor:
        component_cgf, means = self._tilted_components(u)
        return (weighted_softmax(self.weights, component_cgf).unsqueeze(-1) * means).sum(-2)

    def _tilted_covariance(self, u: Tensor) -> Tensor:
        component_cgf, means = self._tilted_components(u)
        weights = weighted_softmax(self.weights, component_cgf).unsqueeze(-1)
        centered = means - (weights * means).sum(-2, keepdim=True)
        within = (weights.unsqueeze(-1) * self.covariances).sum(-3)
        return within + (weights * centered).mT @ centered

    def _complex_cumulants(self, w: Tensor, order: int = 2) -> tuple[Tensor, ...]:
        found = (f(w) for f in (self._cgf, self._tilted_mean, self._tilted_covariance)[: order + 1])
        return tuple(found)

    def _score_nodes(self, u: Tensor, top: float) -> list[ScoreNodes]:
        """By component: x = m + eξ + r, e = Γu/σ, of score u·m + σξ, and r ~ N(0, Γ - ee^T)."""
        found, tilt = [], u.numpy()
        parts = (each.numpy() for each in (self.weights, self.means, self.covariances))
        for weight, mean, covariance in zip(*parts, strict=True):
            if weight == 0:
                continue
            shift, level = covariance @ tilt, float(tilt @ mean)
            sigma = math.sqrt(max(float(tilt @ shift), 0.0))
            check_scores(sigma * (2 * NORMAL_REACH + sigma))
            e, xi, log_mass = np.zeros_like(shift), np.zeros(1), np.zeros(1)
            if sigma > 0:
                # of a normal variable: the rule errs by e^{-2π²/step²}
                e, step = shift / sigma, min(0.5, SCORE_STEP / sigma)
                # the whole law, tilted once, and twice as far as the scores go
                far = max(NORMAL_REACH + sigma, (top - level) / sigma)
                end = min(NORMAL_REACH + 2 * sigma, far)
                xi = step * np.arange(-math.ceil(NORMAL_REACH / step), math.ceil(end / step) + 1.0)
                log_mass = -(xi**2) / 2 + math.log(step / math.sqrt(2 * math.pi))
            log_mass = log_mass + math.log(weight)
            means, rest = mean + xi[:, None] * e, covariance - np.outer(e, e)
            found.append(ScoreNodes(log_mass, level + sigma * xi, means, rest))
        return found

    def _tilt(self, u: Tensor) -> GaussianMixture:
        component_cgf, means = self._tilted_components(u)
        return self._trusted(weighted_softmax(self.weights, component_cgf), means, self.covariances)

    def _map(self, matrix: Tensor, offset: Tensor) -> GaussianMixture:
        means, covariances = self.means @ matrix.mT + offset, matrix @ self.covariances @ matrix.mT
        moved = (validation.in_range("matrix", each) for each in (means, covariances))
        return self._trusted(self.weights, *moved)

    def _tilted_norm_moment4(self, u: Tensor, center: Tensor, V: Tensor | None = None) -> Tensor:
        component_cgf, means = self._tilted_components(u)
        each = gaussian_norm_moment4(means - center.unsqueeze(-2), self.covariances, V)
        return (weighted_softmax(self.weights, component_cgf) * each).sum(-1)

    def _sample(self, n: int, generator: torch.Generator) -> Tensor:
        shape = (*self.batch_shape, n)
        component = random_index(self.weights, shape, generator).unsqueeze(-1)
        noise = torch.randn(
            (*shape, self.dim), generator=generator, dtype=self.dtype, device=self.device
        )
        means = self.means.expand(*self.batch_shape, -1, -1)
        roots = square_root(self.covariances).expand(*self.batch_shape, -1, -1, -1)
        tokens = torch.zeros_like(noise)
        for k in range(self.components):
            drawn = means[..., k, None, :] + noise @ roots[..., k, :, :].mT
            tokens = torch.where(component == k, drawn, tokens)
        return tokens

    def _details(self) -> str:
        return f", components={self.components}"
