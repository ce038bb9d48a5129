"""The exact law of attention over L tokens from a Gaussian mixture: formula (quad.10) of docs/mathematics/quadrature.md.

Given its component k a token splits as z = m_k + e_k ξ + r, e_k = Γ_k u/σ_k, with score u·m_k + σ_k ξ and r ~ N(0, Γ_k - e_k e_k^T)
independent of it.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from largeprompt.errors import InvalidArgumentError
from largeprompt.law.quadrature import LARGEST_EXPONENT, REACH, STEP, Array, Range, drawn, log_survival, relative_ends, widen
from largeprompt.law.weights import NARROW_STEP
from largeprompt.measures import GaussianMixture

MOST_NODES = 60_000  # of τ
ROWS = 256

Moments = tuple[Array, Array, Array]  # E(T_L - T), E(T_L - T)(T_L - T)^T and E Σ w²


def _array(tensor: Tensor) -> Array:
    result: Array = tensor.detach().cpu().to(torch.float64).numpy()
    return result


def _blocks(mu: GaussianMixture, u: Tensor, limit: Tensor, cgf: float, below: float, above: float) -> tuple[Array, ...]:
    """Log φ, H = E[ζ e^{s - e^s}], E[ζζ^T e^{2s - e^s}] and E e^{2s - e^s} on a grid of τ, for one tilt; ζ = z - T."""
    tilt, centre = _array(u), _array(limit)
    tau = np.arange(-below, above + STEP, STEP)
    rows, dim = len(tau), len(tilt)
    lost, kept, pairs, near_size, far_size = np.zeros((5, rows))
    near, far = np.zeros((2, rows, dim))
    second = np.zeros((rows, dim, dim))
    for weight, mean, covariance in zip(*map(_array, (mu.weights, mu.means, mu.covariances)), strict=True):
        if weight == 0:
            continue
        shift = covariance @ tilt
        sigma = math.sqrt(max(float(tilt @ shift), 0.0))
        e = shift / sigma if sigma > 0 else np.zeros_like(shift)
        offset, level = mean - centre, float(tilt @ mean) - cgf
        cross, rest = np.outer(offset, e), covariance - np.outer(e, e) + np.outer(offset, offset)
        for start in range(0, rows, ROWS):
            part = slice(start, start + ROWS)
            died, survived, small, read, squared = _component(tau[part] + level, sigma)
            lost[part] += weight * died
            kept[part] += weight * survived
            for size, total, (plain, along) in ((near_size, near, small), (far_size, far, read)):
                size[part] += weight * np.abs(plain)
                total[part] += weight * (np.outer(plain, offset) + np.outer(along, e))
            j0, j1, j2 = (weight * value[:, None, None] for value in squared)
            pairs[part] += j0[:, 0, 0]
            second[part] += j0 * rest + j1 * (cross + cross.T) + j2 * np.outer(e, e)
    return log_survival(lost, kept), np.where((near_size < far_size)[:, None], near, far), second, pairs


def _integrate(length: float, log_phi: Array, first: Array, second: Array, pairs: Array) -> tuple[Moments, Array]:
    """First and second moment of T_L - T and E Y, and what the integrands still are at the two ends."""
    once, twice = (drawn(length, k, log_phi)[:, None, None] * STEP for k in (1, 2))
    outer = first[:, :, None] * first[:, None, :]
    integrands = [once[..., 0] * first, once * second + twice * outer, once[:, 0, 0] * pairs]
    ends = [relative_ends(np.abs(x).reshape(len(x), -1).max(axis=1)) for x in integrands]
    bias, square, collision = (x.sum(axis=0) for x in integrands)
    return (bias, square, np.asarray(collision)), np.max(ends, axis=0)


def _component(level: Array, sigma: float) -> tuple[Any, ...]:
    """Expectations over ξ at s = level + σξ: 1 - φ, φ, and with 1, ξ, .. the two forms of e^{s - e^s} (see H), and e^{2s - e^s}.

    As E[ζ e^s] = 0, e^s (e^{-e^s} - 1) serves for e^{s - e^s}, and keeps its digits where e^s is small.
    """
    if sigma > 0:
        step = min(NARROW_STEP, STEP / sigma)
        # the form for small e^s does not die out beyond the largest exponent, so it needs the whole law tilted once
        top = min(REACH + 2 * sigma, max(REACH + sigma, (LARGEST_EXPONENT - float(level.min())) / sigma))
        xi = step * np.arange(-math.ceil(REACH / step), math.ceil(top / step) + 1)
        weight = np.exp(-(xi**2) / 2) * (step / math.sqrt(2 * math.pi))
    else:
        xi, weight = np.zeros(1), np.ones(1)
    grown = np.exp(np.minimum(level[:, None] + sigma * xi, 300.0))
    survival, died = np.exp(-grown), -np.expm1(-grown)
    read, small = grown * survival, -np.minimum(grown, 1e100) * died
    powers = weight, weight * xi, weight * xi**2
    first = ([values @ power for power in powers[:2]] for values in (small, read))
    return died @ weight, survival @ weight, *first, [(grown * read) @ power for power in powers]


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


def _solve(mu: GaussianMixture, u: Tensor, limit: Tensor, cgf: float, lengths: Sequence[float]) -> list[Moments]:
    finite = [length for length in lengths if 1 < length < math.inf]
    offset = _array(mu.mean - limit)
    solved: dict[float, Moments] = {
        1.0: (offset, _array(mu.covariance) + np.outer(offset, offset), np.ones(())),  # the token itself is read: T_1 = z
        math.inf: (np.zeros(mu.dim), np.zeros((mu.dim, mu.dim)), np.zeros(())),
    }
    if not finite:
        return [solved[length] for length in lengths]
    used = mu.weights > 0
    levels = (mu.means @ u - cgf)[used]
    sigma = float(torch.einsum("i,kij,j->k", u, mu.covariances, u)[used].clamp_min(0).max().sqrt())
    below = 28 + math.log(max(finite)) + min(1.5 * sigma**2, 10 * sigma) + max(0.0, float(levels.max()))
    above = 5 + 10.5 * sigma - min(0.0, float(levels.min()))

    def evaluate(ranges: Sequence[Range]) -> tuple[dict[float, Moments], Array]:
        blocks = _blocks(mu, u, limit, cgf, *ranges[0])
        found = {length: _integrate(length, *blocks) for length in finite}
        return {length: one[0] for length, one in found.items()}, np.max([one[1] for one in found.values()], axis=0)

    solved |= widen(evaluate, [(below, above)], further=7.0 + sigma, nodes=MOST_NODES)
    return [solved[length] for length in lengths]
