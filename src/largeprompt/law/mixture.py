"""The exact law of attention over L tokens from a Gaussian mixture.

Given its component k a token splits as z = m_k + e_k ξ + r, e_k = Γ_k u/σ_k, with score u·m_k + σ_k ξ and r ~ N(0, Γ_k - e_k e_k^T)
independent of it. The integrals of :mod:`largeprompt.law.weights` then carry a vector: with g = u·z - Λ(u), s = τ + g, ζ = z - T,

    E T_L - T = L ∫ φ^{L-1} H dτ,   H = E[ζ e^{s - e^s}],   φ = E e^{-e^s},
    E (T_L - T)(T_L - T)^T = L ∫ φ^{L-1} E[ζζ^T e^{2s - e^s}] dτ + L(L-1) ∫ φ^{L-2} H H^T dτ.

E[ζ e^s] = 0 because T is the tilted mean, so H is also E[ζ e^s (e^{-e^s} - 1)], which keeps its digits where e^s is small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from largeprompt.errors import InvalidArgumentError
from largeprompt.law.weights import EDGE, LARGEST_EXPONENT, NARROW_STEP, REACH, STEP, log_survival
from largeprompt.measures import GaussianMixture

Array = NDArray[np.float64]
MOST_NODES = 60_000  # of τ
ROWS = 256


def _array(tensor: Tensor) -> Array:
    result: Array = tensor.detach().cpu().to(torch.float64).numpy()
    return result


class _Moments:
    """φ, H and E[ζζ^T e^{2s - e^s}] on a grid of τ, for one tilt."""

    def __init__(self, mu: GaussianMixture, u: Tensor, limit: Tensor, cgf: float, below: float, above: float) -> None:
        weights, means, covariances = (_array(t) for t in (mu.weights, mu.means, mu.covariances))
        tilt, centre = _array(u), _array(limit)
        self.tau = np.arange(-below, above + STEP, STEP)
        rows, dim = len(self.tau), len(tilt)
        lost, kept, pairs = np.zeros(rows), np.zeros(rows), np.zeros(rows)
        near, far = np.zeros((rows, dim)), np.zeros((rows, dim))
        near_size, far_size = np.zeros(rows), np.zeros(rows)
        self.second = np.zeros((rows, dim, dim))
        for weight, mean, covariance in zip(weights, means, covariances, strict=True):
            if weight == 0:
                continue
            shift = covariance @ tilt
            sigma = math.sqrt(max(float(tilt @ shift), 0.0))
            e = shift / sigma if sigma > 0 else np.zeros_like(shift)
            offset, level = mean - centre, float(tilt @ mean) - cgf
            for start in range(0, rows, ROWS):
                part = slice(start, start + ROWS)
                integrals = _component(self.tau[part] + level, sigma)
                lost[part] += weight * integrals["lost"]
                kept[part] += weight * integrals["kept"]
                for size, total, name in ((near_size, near, "near"), (far_size, far, "far")):
                    size[part] += weight * np.abs(integrals[name][0])
                    total[part] += weight * (np.outer(integrals[name][0], offset) + np.outer(integrals[name][1], e))
                j0, j1, j2 = (weight * value[:, None, None] for value in integrals["pairs"])
                pairs[part] += j0[:, 0, 0]
                cross = np.outer(offset, e)
                rest = covariance - np.outer(e, e) + np.outer(offset, offset)
                self.second[part] += j0 * rest + j1 * (cross + cross.T) + j2 * np.outer(e, e)
        self.log_phi = log_survival(lost, kept)
        self.first = np.where((near_size < far_size)[:, None], near, far)
        self.pairs = pairs

    def integrate(self, length: float) -> tuple[Array, Array, float, tuple[float, float]]:
        """First and second moment of T_L - T, E Y, and what the integrands still are at the two ends, relative to the largest."""
        once = length * np.exp((length - 1) * self.log_phi)[:, None, None] * STEP
        others = np.exp((length - 2) * self.log_phi) if length > 2 else np.ones_like(self.log_phi)
        twice = length * (length - 1) * others[:, None, None] * STEP
        outer = self.first[:, :, None] * self.first[:, None, :]
        integrands = [once[..., 0] * self.first, once * self.second + twice * outer, once[:, 0, 0] * self.pairs]
        ends = [max(float(np.abs(x[end]).max() / (np.abs(x).max() + 1e-300)) for x in integrands) for end in (0, -1)]
        bias, second, collision = (x.sum(axis=0) for x in integrands)
        return bias, second, float(collision), (ends[0], ends[1])


def _component(level: Array, sigma: float) -> dict[str, Any]:
    """Expectations over ξ for one component, at s = level + σξ."""
    if sigma > 0:
        step = min(NARROW_STEP, STEP / sigma)
        # the form for small e^s does not die out beyond the largest exponent, so it needs the whole law tilted once
        top = min(REACH + 2 * sigma, max(REACH + sigma, (LARGEST_EXPONENT - float(level.min())) / sigma))
        xi = step * np.arange(-math.ceil(REACH / step), math.ceil(top / step) + 1)
        weight = np.exp(-(xi**2) / 2) * (step / math.sqrt(2 * math.pi))
    else:
        xi, weight = np.zeros(1), np.ones(1)
    s = level[:, None] + sigma * xi
    grown = np.exp(np.minimum(s, 300.0))
    survival = np.exp(-grown)
    died = -np.expm1(-grown)
    read = grown * survival
    squared = grown * read
    small = -np.minimum(grown, 1e100) * died
    return {
        "lost": died @ weight,
        "kept": survival @ weight,
        "near": [small @ weight, small @ (weight * xi)],
        "far": [read @ weight, read @ (weight * xi)],
        "pairs": [squared @ weight, squared @ (weight * xi), squared @ (weight * xi**2)],
    }


def output_laws(mu: GaussianMixture, u: Tensor, values: Tensor, lengths: Sequence[float]) -> list[tuple[Tensor, ...]]:
    """Bias, covariance, mean squared error, the same without V, and E Y, for each length."""
    if mu.batch_shape:
        raise InvalidArgumentError("mu", repr(mu), "one mixture, without batch dimensions", "Loop over the mixtures.")
    batch, dim = u.shape[:-1], mu.dim
    tilts = u.detach().to(torch.float64).reshape(-1, dim)
    # centred tokens: the same errors, and no digits lost to a large mean
    mu = mu.to(torch.float64).map(torch.eye(dim, dtype=torch.float64, device=mu.device), -mu.mean.to(torch.float64))
    values = values.detach()
    limits, cgfs = mu.tilted_mean(tilts), mu.cgf(tilts)
    solved = [_solve(mu, tilt, limit, float(cgf), lengths) for tilt, limit, cgf in zip(tilts, limits, cgfs, strict=True)]
    results: list[tuple[Tensor, ...]] = []
    for i in range(len(lengths)):
        first, second, collision = (np.array([one[i][j] for one in solved]) for j in range(3))
        bias = (values @ torch.from_numpy(first).reshape(*batch, dim, 1).to(u)).squeeze(-1)
        moment = torch.from_numpy(second).reshape(*batch, dim, dim).to(u)
        read = values @ moment @ values.mT
        trace, whole = (m.diagonal(dim1=-2, dim2=-1).sum(-1) for m in (read, moment))
        covariance = read - bias.unsqueeze(-1) * bias.unsqueeze(-2)
        results.append((bias, covariance, trace, whole, torch.from_numpy(collision).reshape(batch).to(u)))
    return results


def _one_token(mu: GaussianMixture, limit: Tensor) -> tuple[Array, Array, Array]:
    """A prompt of one token is read whole: T_1 = z."""
    offset = _array(mu.mean - limit)
    return offset, _array(mu.covariance) + np.outer(offset, offset), np.ones(())


def _solve(mu: GaussianMixture, u: Tensor, limit: Tensor, cgf: float, lengths: Sequence[float]) -> list[tuple[Array, Array, Array]]:
    finite = [length for length in lengths if 1 < length < math.inf]
    solved: dict[float, tuple[Array, Array, Array]]
    solved = {1.0: _one_token(mu, limit), math.inf: (np.zeros(mu.dim), np.zeros((mu.dim, mu.dim)), np.zeros(()))}
    if not finite:
        return [solved[length] for length in lengths]
    used = mu.weights > 0
    levels = (mu.means @ u - cgf)[used]
    sigma = float(torch.einsum("i,kij,j->k", u, mu.covariances, u)[used].clamp_min(0).max().sqrt())
    below = 28 + math.log(max(finite)) + min(1.5 * sigma**2, 10 * sigma) + max(0.0, float(levels.max()))
    above = 5 + 10.5 * sigma - min(0.0, float(levels.min()))
    while True:
        if (below + above) / STEP > MOST_NODES:
            raise InvalidArgumentError(
                "mu",
                f"scores that spread over {below + above:.3g} units",
                f"at most {MOST_NODES * STEP:.0f}",
                "The components' scores are too far apart for this quadrature; use sample_prompts(...).",
            )
        table = _Moments(mu, u, limit, cgf, below, above)
        found = {length: table.integrate(length) for length in finite}
        start, end = (max(one[3][i] for one in found.values()) for i in (0, 1))
        if start <= EDGE and end <= EDGE:
            solved |= {length: (one[0], one[1], np.asarray(one[2])) for length, one in found.items()}
            return [solved[length] for length in lengths]
        below, above = below + (14.0 if start > EDGE else 0.0), above + (7.0 + sigma if end > EDGE else 0.0)
