"""Moments of softmax weights over Gaussian scores, by quadrature, at a cost that does not depend on the length.

With ξ_1..ξ_L standard normal and w = softmax(σξ), every moment E Π_j Σ_l w_l^{a_j} (ξ_l - c)^{b_j} is a sum over the ways in which
the factors share tokens (:mod:`largeprompt.law.partitions`). For blocks (a_i, b_i), i = 1..k, with n = Σ a_i, the normalisation
Z^{-n} = ∫ t^{n-1} e^{-tZ} dt/(n-1)! makes the tokens independent, and with t = e^τ

    E Σ_{distinct l_1..l_k} Π w_{l_i}^{a_i} (ξ_{l_i} - c)^{b_i} = L(L-1)...(L-k+1)/(n-1)! ∫ φ(τ)^{L-k} Π_i G_{a_i b_i}(τ) dτ,
    G_{ab}(τ) = E[(ξ - c)^b e^{as - e^s}],  s = τ + σξ,  φ = G_00.

Both the integral over τ and the expectation over ξ are trapezoid sums of functions that are analytic in a strip, so they converge
geometrically: the step 0.14 is far more than enough. log φ comes from 1 - φ = E[-expm1(-e^s)] where φ is near one, so that
φ^{L-k} is as accurate at L = 10^15 as at 10. The range of τ is widened until nothing is lost at its ends.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from largeprompt.law.partitions import Term, block_counts

Array = NDArray[np.float64]

STEP = 0.14  # of τ, and of σξ for wide score laws
WIDE = STEP / 0.55  # from this scale on the lattice of τ serves for s as well: the trapezoid rule in ξ needs steps below 0.55
NARROW_STEP = 0.5  # of ξ for narrow score laws
REACH = 8.8  # standard deviations on either side of the (tilted) centre of ξ
LARGEST_EXPONENT = 6.7  # e^{-e^s} underflows beyond
SCALES_AT_ONCE = 64
FEW_SCALES = 6
ROWS = 64  # of the window matrix at a time: what stays in the cache
EDGE = 1e-17  # what the integrand may still be at the ends of the range, relative to its largest value


@dataclasses.dataclass(frozen=True)
class _Blocks:
    """Block expectations on a grid of τ for a batch of scales: arrays of shape (τ, scale)."""

    log_phi: Array
    values: dict[Term, Array]


def _wide_blocks(start: float, count: int, scales: Array, center: Array, needed: Sequence[Term]) -> _Blocks:
    """Use one lattice for τ and s: each expectation is a product of a window matrix, shared by all scales, with a kernel."""
    highest = max(a for a, _ in needed)
    left = math.ceil(REACH * scales.max() / STEP)
    right_reach = min(highest * scales.max() ** 2 + REACH * scales.max(), max(REACH * scales.max(), LARGEST_EXPONENT - start))
    right = math.ceil(right_reach / STEP)
    xi = STEP * np.arange(-left, right + 1)[:, None] / scales  # (s - τ)/σ, shape (v, scale)
    kernel = np.exp(-(xi**2) / 2) * (STEP / math.sqrt(2 * math.pi)) / scales
    s = np.minimum(start + STEP * np.arange(-left, right + count), LARGEST_EXPONENT + 1)  # beyond, all are 0 or 1 already
    grown = np.exp(s)
    functions: list[tuple[Array, Array]] = [(-np.expm1(-grown), kernel), (np.exp(-grown), kernel)]
    columns = {}
    for a in sorted({a for a, _ in needed}):
        orders = sorted({b for other, b in needed if other == a})
        columns[a] = orders
        functions.append((np.exp(a * s - grown), np.hstack([kernel * (xi - center) ** b if b else kernel for b in orders])))
    results = [np.zeros((count, weight.shape[1])) for _, weight in functions]
    if len(scales) <= FEW_SCALES:  # no window matrix to share
        for j, ((values, weight), result) in enumerate(zip(functions, results, strict=True)):
            if j == 1 and results[0].max() < 0.5:
                continue  # φ itself is needed only where it is small
            for i, column in enumerate(weight.T):
                result[:, i] = np.correlate(values, column, "valid")
    else:
        beyond = np.vstack([np.cumsum(kernel[::-1], axis=0)[::-1], np.zeros_like(scales)])  # mass of the kernel from each v on
        for row in range(0, count, ROWS):
            rows = min(ROWS, count - row)
            # beyond the largest exponent every function is 0, except 1 - e^{-e^s}, which is 1 there
            width = min(left + right + 1, max(0, math.floor((LARGEST_EXPONENT - start) / STEP) - row + left + 1))
            if width:
                for (values, weight), result in zip(functions, results, strict=True):
                    window = np.lib.stride_tricks.sliding_window_view(values[row : row + rows + width - 1], width)
                    result[row : row + rows] = window @ weight[:width]
            results[0][row : row + rows] += beyond[width]
    lost, kept = results[:2]
    pieces = {
        (a, b): (result, i) for (a, orders), result in zip(columns.items(), results[2:], strict=True) for i, b in enumerate(orders)
    }
    n = len(scales)
    return _Blocks(log_survival(lost, kept), {term: result[:, i * n : (i + 1) * n] for term, (result, i) in pieces.items()})


def _narrow_blocks(start: float, count: int, scales: Array, center: Array, needed: Sequence[Term]) -> _Blocks:
    """For σ below the lattice step: a trapezoid rule in ξ itself, one exponential for every (τ, scale, ξ)."""
    highest = max(a for a, _ in needed)
    side = NARROW_STEP * np.arange(1, math.ceil((REACH + highest * scales.max()) / NARROW_STEP) + 1)
    xi = np.concatenate([-side[::-1], [0.0], side])
    weight = np.exp(-(xi**2) / 2) * (NARROW_STEP / math.sqrt(2 * math.pi))
    t = np.exp(start + STEP * np.arange(count))[:, None, None]
    growth = np.exp(scales[:, None] * xi)  # e^{σξ}, (scale, ξ)
    survival = np.exp(-t * growth)
    values = {}
    for a, b in needed:
        power = t[:, :, 0] ** a
        if b % 2 and not center.any():
            # odd in ξ up to the tilt: f(ξ) - f(-ξ) = 2 e^{-t cosh σξ} sinh(aσξ - t sinh σξ) keeps its digits as σ -> 0
            turned, right, left = scales[:, None] * side, len(side) + 1, len(side) - 1
            argument = a * turned - t * np.sinh(turned)
            apart = growth[:, right:] ** a * survival[..., right:] - (growth**a)[:, left::-1] * survival[..., left::-1]
            close = 2 * np.exp(-t * np.cosh(turned)) * np.sinh(np.clip(argument, -1, 1))
            odd = np.where(np.abs(argument) < 1, close, apart)
            values[a, b] = power * (odd @ (weight[len(side) + 1 :] * side**b))
        else:
            values[a, b] = power * np.einsum("tsx,sx->ts", survival, weight * growth**a * (xi - center[:, None]) ** b)
    return _Blocks(log_survival(-np.expm1(-t * growth) @ weight, survival @ weight), values)


def log_survival(lost: Array, kept: Array) -> Array:
    """log φ from 1 - φ where φ is near one, and from φ itself where little is left of it."""
    with np.errstate(divide="ignore"):
        return np.where(lost < 0.5, np.log1p(-np.minimum(lost, 0.5)), np.log(kept))


def _falling(length: float, count: int) -> float:
    """L(L-1)...(L-k+1), and 0 when there are not enough tokens."""
    return math.prod(max(length - i, 0.0) for i in range(count))


def _normal_moments(mean: Array, highest: int) -> list[Array]:
    """E(ξ + mean)^b for b = 0..highest."""
    moments = [np.ones_like(mean), mean]
    for b in range(2, highest + 1):
        moments.append(mean * moments[-1] + (b - 1) * moments[-2])
    return moments[: highest + 1]


def _without_tilt(length: float, center: Array, products: Sequence[tuple[Term, ...]]) -> Array:
    """Scale 0: all weights are 1/L and the ξ are independent, so the sum over partitions is exact."""
    results = []
    for terms in products:
        total = sum(a for a, _ in terms)
        moments = _normal_moments(-center, sum(b for _, b in terms))
        value = np.zeros_like(center)
        for blocks, ways in block_counts(terms):
            ratio = math.prod(max(length - i, 0.0) / length for i in range(len(blocks))) * length ** (len(blocks) - total)
            value = value + ways * ratio * math.prod(moments[b] for _, b in blocks)
        results.append(value)
    return np.stack(results)


def _one_token(center: Array, products: Sequence[tuple[Term, ...]]) -> Array:
    """Length 1: the weight is one."""
    orders = [sum(b for _, b in terms) for terms in products]
    moments = _normal_moments(-center, max(orders))
    return np.stack([moments[b] for b in orders])


def _endless(scales: Array, center: Array, products: Sequence[tuple[Term, ...]]) -> Array:
    """Length infinity: Σ w (ξ - c)^b tends to the tilted moment, ξ ~ N(σ, 1), and Σ w^a (·) to 0 for a >= 2."""
    highest = max(b for terms in products for _, b in terms)
    moments = _normal_moments(scales - center, highest)
    zero = np.zeros_like(scales)
    return np.stack([math.prod(moments[b] if a == 1 else zero for a, b in terms) for terms in products])


def _integrate(length: float, scales: Array, center: Array, products: Sequence[tuple[Term, ...]]) -> Array:
    """Quadrature for 0 < σ and 1 < L < ∞; scales of one kind, narrow or wide."""
    partitions = [block_counts(terms) for terms in products]
    needed = sorted({block for partition in partitions for blocks, _ in partition for block in blocks})
    compute = _wide_blocks if scales.min() >= WIDE else _narrow_blocks
    lowest = min(sum(a for a, _ in terms) for terms in products)
    sigma = float(scales.max())
    below, above = math.log(length) + min(1.5 * sigma**2, 10 * sigma) + 44.0 / lowest, 5 + 10.5 * sigma
    if length >= 200:
        # 1 - φ >= P(s > 0)(1 - 1/e), so φ^{L-k} < e^{-45} once P(s > 0) = Φ(τ/σ) exceeds 80/L, for every scale of the batch
        quantile = NormalDist().inv_cdf(80 / length)
        above = min(above, 1 + max(quantile * sigma, quantile * float(scales.min())))
    while True:
        start, count = -below, math.ceil((below + above) / STEP) + 1
        blocks = compute(start, count, scales, center, needed)
        powers = {
            k: np.exp((length - k) * blocks.log_phi) if length > k else np.ones_like(blocks.log_phi)
            for k in {len(parts) for partition in partitions for parts, _ in partition if len(parts) <= length}
        }
        results, at_start, at_end = [], 0.0, 0.0
        for terms, partition in zip(products, partitions, strict=True):
            value: Array = np.zeros_like(scales)
            total = sum(a for a, _ in terms)
            for parts, ways in partition:
                if len(parts) > length:
                    continue
                integrand = powers[len(parts)] * math.prod(blocks.values[part] for part in parts)
                size = np.abs(integrand).max(axis=0) + 1e-300
                at_start = max(at_start, float((np.abs(integrand[0]) / size).max()))
                at_end = max(at_end, float((np.abs(integrand[-1]) / size).max()))
                value = value + ways * _falling(length, len(parts)) / math.factorial(total - 1) * STEP * integrand.sum(axis=0)
            results.append(value)
        if at_start <= EDGE and at_end <= EDGE:
            return np.stack(results)
        below, above = below + (14.0 if at_start > EDGE else 0.0), above + (7.0 + sigma if at_end > EDGE else 0.0)


def moments(length: float, scales: Array, center: Array, products: Sequence[tuple[Term, ...]]) -> Array:
    """E Π_j Σ_l w_l^{a_j} (ξ_l - c)^{b_j} for several products at once: shape (product, scale) for scales of shape (scale,)."""
    results = np.empty((len(products), len(scales)))
    if length == 1:
        return _one_token(center, products)
    if math.isinf(length):
        return _endless(scales, center, products)
    for chosen in (scales == 0, (scales > 0) & (scales < WIDE), scales >= WIDE):
        # neighbouring scales together, so that the ranges fit all of a batch
        order = np.flatnonzero(chosen)[np.argsort(scales[chosen])]
        for batch in np.array_split(order, max(1, math.ceil(len(order) / SCALES_AT_ONCE))):
            if not len(batch):
                continue
            if scales[batch[0]] == 0:
                results[:, batch] = _without_tilt(length, center[batch], products)
            else:
                results[:, batch] = _integrate(length, scales[batch], center[batch], products)
    return results
