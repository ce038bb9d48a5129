"""Moments that mix the weights of two softmaxes over the same tokens: two heads whose tilts point along one line.

With ξ_1..ξ_L standard normal, w = softmax(σξ) and w' = softmax(σ'ξ), σ' of either sign, both normalisations become integrals,

    1/(Z^n Z'^m) = ∫∫ t^{n-1} t'^{m-1} e^{-tZ - t'Z'} dt dt' / ((n-1)!(m-1)!),

after which the tokens are independent. For blocks (a_i, b_i), i = 1..k, with n = Σ a_i, m = Σ b_i, t = e^τ and t' = e^τ',

    E Σ_{distinct l_1..l_k} Π w_{l_i}^{a_i} w'_{l_i}^{b_i} = L(L-1)...(L-k+1)/((n-1)!(m-1)!) ∫∫ φ^{L-k} Π_i G_{a_i b_i} dτ dτ',
    G_{ab}(τ, τ') = E[g_a(τ + σξ) g_b(τ' + σ'ξ)],   g_a(s) = e^{as - e^s},   φ = G_00.

Collinear tilts share ξ, so each G is one matrix product over the nodes of ξ, and the cost does not depend on L. log φ comes from
1 - φ = E[(1 - g_0) + g_0 (1 - g'_0)], a sum of positive terms, so that L = 10^15 is as accurate as 10.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.law.moment import weight_moments
from largeprompt.law.partitions import Term, block_counts
from largeprompt.law.weights import LARGEST_EXPONENT, REACH, log_survival

Array = NDArray[np.float64]
Product = tuple[Term, ...]  # Π_j Σ_l w_l^{a_j} w'_l^{b_j}

STEP = 0.25  # of τ, τ' and of the scores: integrands are analytic for |Im τ| < π/2, so the trapezoid rule errs by e^{-π²/STEP}
EDGE = 1e-16  # what the integrand may still be at the ends of the range, relative to its largest value
LARGEST_STEP = 0.5  # of ξ
LARGEST_SCALE = 12.0  # beyond, the plane of (τ, τ') takes seconds
MOST_FACTORS = 4
LARGEST_POWER = 8


def _axis(length: float, scale: float, order: int) -> tuple[float, float]:
    """Range of τ for one head whose exponents add up to ``order``, before anything is known of the integrand."""
    below = math.log(length) + min(scale**2, 6 * scale) + 40.0 / order
    above = 5 + (1 + math.sqrt(80 / length)) * scale
    if length >= 200:  # φ^{L-k} < e^{-45} once P(s > 0) exceeds 80/L; see largeprompt.law.weights
        above = min(above, 1 + NormalDist().inv_cdf(80 / length) * scale)
    return below, above


def _integrate(length: float, scales: tuple[float, float], products: Sequence[Product]) -> Array:
    """Quadrature in the plane for 1 < L < ∞ and products in which both heads appear."""
    partitions = [block_counts(product) for product in products]
    needed = sorted({block for partition in partitions for blocks, _ in partition for block in blocks})
    tilts = [a * scales[0] + b * scales[1] for a, b in needed] + [0.0]
    size = max(abs(scale) for scale in scales)
    step = min(LARGEST_STEP, STEP / size) if size > 0 else LARGEST_STEP
    xi = step * np.arange(math.floor((min(tilts) - REACH) / step), math.ceil((max(tilts) + REACH) / step) + 1)
    density = np.exp(-(xi**2) / 2) * (step / math.sqrt(2 * math.pi))
    orders = [min(sum(term[i] for term in product) for product in products) for i in (0, 1)]
    ranges = [_axis(length, abs(scale), order) for scale, order in zip(scales, orders, strict=True)]
    while True:
        heads = []
        for scale, (below, above) in zip(scales, ranges, strict=True):
            tau = STEP * np.arange(math.floor(-below / STEP), math.ceil(above / STEP) + 1)
            heads.append(tau[:, None] + scale * xi)  # scores, (τ, ξ)
        grown = [np.exp(np.minimum(s, LARGEST_EXPONENT + 1)) for s in heads]
        kept, lost = [np.exp(-g) for g in grown], [-np.expm1(-g) for g in grown]
        powers = [
            {n: np.exp(n * s - g) if n else k for n in {block[i] for block in needed}}
            for i, (s, g, k) in enumerate(zip(heads, grown, kept, strict=True))
        ]
        log_phi = log_survival((lost[0] @ density)[:, None] + (kept[0] * density) @ lost[1].T, (kept[0] * density) @ kept[1].T)
        blocks = {(a, b): (powers[0][a] * density) @ powers[1][b].T for a, b in needed}
        counts = {len(parts) for partition in partitions for parts, _ in partition if len(parts) <= length}
        survival = {k: np.exp((length - k) * log_phi) if length > k else np.ones_like(log_phi) for k in counts}
        results, ends = [], np.zeros((2, 2))
        for product, partition in zip(products, partitions, strict=True):
            order = [sum(term[i] for term in product) for i in (0, 1)]
            value = 0.0
            for parts, ways in partition:
                if len(parts) > length:
                    continue
                integrand = survival[len(parts)] * math.prod(blocks[part] for part in parts)
                largest = float(integrand.max()) + 1e-300
                edges = [[integrand[0].max(), integrand[-1].max()], [integrand[:, 0].max(), integrand[:, -1].max()]]
                ends = np.maximum(ends, np.array(edges) / largest)
                chosen = math.prod(length - i for i in range(len(parts)))
                value += ways * chosen * STEP**2 * float(integrand.sum()) / math.prod(math.factorial(n - 1) for n in order)
            results.append(value)
        if (ends <= EDGE).all():
            return np.array(results)
        ranges = [
            (below + (14.0 if low > EDGE else 0.0), above + (7.0 + size if high > EDGE else 0.0))
            for (below, above), (low, high) in zip(ranges, ends, strict=True)
        ]


def _values(length: float, scales: tuple[float, float], products: Sequence[Product]) -> Array:
    """All products at one pair of scales; those of one head alone go to the one-dimensional rule."""
    if length == 1:
        return np.ones(len(products))
    single = [all(term in ((1, 0), (0, 1)) for term in product) for product in products]
    if math.isinf(length):
        return np.array(single, dtype=np.float64)
    result = np.ones(len(products))
    orders = [[sum(term[i] for term in product) for i in (0, 1)] for product in products]
    mixed = [j for j, order in enumerate(orders) if min(order) > 0 and not single[j]]
    if mixed:
        result[mixed] = _integrate(length, scales, [products[j] for j in mixed])
    for i in (0, 1):
        alone = [j for j, order in enumerate(orders) if order[1 - i] == 0 and not single[j]]
        if alone:
            powers = [[(term[i], 0) for term in products[j]] for j in alone]
            result[alone] = weight_moments(length, abs(scales[i]), powers).numpy()
    return result


def _simplified(product: Sequence[Term]) -> Product:
    """Without the factors Σ w = Σ w' = 1, in a fixed order; (1, 0) where nothing else is left."""
    return tuple(sorted(term for term in product if term not in ((1, 0), (0, 1)))) or ((1, 0),)


def _moved(head: int, local: Term, product: Product) -> list[tuple[float, Term, Product]]:
    """Derivative of w_l^a w'_l^b Π P in the score of token l of one head, from dw_k = w_k (1[k = l] - w_l)."""
    unit = (1, 0) if head == 0 else (0, 1)

    def plus(one: Term, other: Term) -> Term:
        return one[0] + other[0], one[1] + other[1]

    found: list[tuple[float, Term, Product]] = []
    if local[head]:
        found += [(float(local[head]), local, product), (-float(local[head]), plus(local, unit), product)]
    for j, term in enumerate(product):
        if term[head] and term != unit:
            others = product[:j] + product[j + 1 :]
            found += [(float(term[head]), plus(local, term), others), (-float(term[head]), plus(local, unit), product)]
    return found


def _derivative(product: Product, head: int, scales: tuple[Tensor, Tensor]) -> list[tuple[Tensor, Product]]:
    """Derivative of E Π P in the scale of one head, as a combination of moments of the same kind.

    d/dσ E F = E Σ_l ξ_l ∂F/∂s_l = σ E Σ_l ∂²F/∂s_l² + σ' E Σ_l ∂²F/∂s_l∂s'_l with s = σξ, s' = σ'ξ: Stein's identity once.
    """
    total: Counter[tuple[int, Product]] = Counter()
    for first, local, rest in _moved(head, (0, 0), product):
        for other in (0, 1):
            for second, place, left in _moved(other, local, rest):
                total[other, _simplified((place, *left))] += first * second  # type: ignore[assignment]
    return [(factor * scales[other], terms) for (other, terms), factor in total.items() if factor]


class _TwoHeadMoments(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scale: Tensor, other: Tensor, length: float, products: tuple[Product, ...]) -> Tensor:
        ctx.save_for_backward(scale, other)
        ctx.length, ctx.products = length, products
        pairs = torch.stack([scale, other], -1).detach().reshape(-1, 2).numpy()
        unique, back = np.unique(pairs, axis=0, return_inverse=True)
        values = np.stack([_values(length, (float(s), float(t)), products) for s, t in unique], axis=-1)
        return torch.from_numpy(values[:, back.reshape(-1)].reshape(len(products), *scale.shape))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        scales = ctx.saved_tensors
        results: list[Tensor | None] = []
        for head in (0, 1):
            if not ctx.needs_input_grad[head]:
                results.append(None)
                continue
            combinations = [_derivative(product, head, scales) for product in ctx.products]
            wanted = sorted({terms for combination in combinations for _, terms in combination})
            total = torch.zeros_like(scales[head])
            if wanted:
                known = dict(zip(wanted, _moments(scales[0], scales[1], ctx.length, tuple(wanted)), strict=True))
                for gradient, combination in zip(gradients[0], combinations, strict=True):
                    for factor, terms in combination:
                        total = total + gradient * factor * known[terms]
            results.append(total)
        return results[0], results[1], None, None


def _moments(scale: Tensor, other: Tensor, length: float, products: tuple[Product, ...]) -> Tensor:
    return _TwoHeadMoments.apply(scale, other, length, products)  # type: ignore[no-any-return, no-untyped-call]


def _products(products: Any) -> tuple[Product, ...]:
    try:
        found = tuple(tuple((int(a), int(b)) for a, b in powers) for powers in products)
        integral = all(
            tuple(term) == tuple(given)
            for powers, origin in zip(found, products, strict=True)
            for term, given in zip(powers, origin, strict=True)
        )
    except (TypeError, ValueError):
        found, integral = (), False
    good = (
        integral
        and len(found) > 0
        and all(
            1 <= len(powers) <= MOST_FACTORS
            and all(a >= 0 and b >= 0 and a + b >= 1 for a, b in powers)
            and sum(map(sum, powers)) <= LARGEST_POWER
            for powers in found
        )
    )
    if not good:
        allowed = f"lists of one to {MOST_FACTORS} pairs of integers (a, b), a, b >= 0, not both 0, {LARGEST_POWER} at most in all"
        raise InvalidArgumentError("products", repr(products), allowed, "E Σ w w' is products=[[(1, 1)]].")
    return found


def two_head_moments(length: float, scale: Any, other: Any, products: Sequence[Any]) -> Tensor:
    """E Π_j Σ_l w_l^{a_j} w'_l^{b_j} for w = softmax(σξ) and w' = softmax(σ'ξ) over the same ξ_1..ξ_L, standard normal.

    Two heads read the same prompt with tilts along one line, opposite ones (σ' = -σ) included. Relative error about 1e-13, at a
    cost that does not depend on the length; differentiable in both scales.

    Parameters
    ----------
    length
        L, an integer from 1 to 10^15, or ``math.inf``.
    scale, other
        σ and σ', each from -12 to 12; numbers, arrays or tensors, broadcast together.
    products
        Lists of pairs (a_j, b_j): [(1, 1)] is the overlap E Σ w w', [(2, 0), (0, 2)] is E Σ w² Σ w'².

    Returns
    -------
    Tensor
        Shape ``(len(products), *broadcast shape)``.

    Examples
    --------
    >>> overlap, = lp.two_head_moments(10**9, 1.0, -1.0, [[(1, 1)]])
    >>> print(f"{1e9 * overlap:.6f} {math.exp(-1):.6f}")  # e^{σσ'} / L for long prompts
    0.367879 0.367879
    """
    tensors = [validation.tensor(name, value) for name, value in (("scale", scale), ("other", other))]
    for name, value in zip(("scale", "other"), tensors, strict=True):
        if value.numel() and float(value.detach().abs().max()) > LARGEST_SCALE:
            given = f"{float(value.detach().abs().max()):.6g} in size"
            raise InvalidArgumentError(name, given, f"numbers from -{LARGEST_SCALE:g} to {LARGEST_SCALE:g}")
    tokens = validation.length("length", length, allow_infinity=True)
    first, second = torch.broadcast_tensors(*(value.to(torch.float64) for value in tensors))
    return _moments(first, second, tokens, _products(products))


OVERLAP: tuple[Product, ...] = (
    ((1, 1),),
    ((2, 1),),
    ((1, 2),),
    ((1, 1), (1, 1)),
    ((2, 0), (0, 2)),
    ((1, 1), (2, 0)),
    ((1, 1), (0, 2)),
)


def two_head_overlap(length: float, scale: Any, other: Any) -> tuple[Tensor, Tensor]:
    """X = E Σ w w' and E S S' - X: with e = Γu/σ, E(T - m)(T' - m)^T = X Γ + (E S S' - X) ee^T for two heads with collinear tilts.

    By Stein's identity, with Y = Σ w², Y' = Σ w'², X = Σ w w' and P_ab = Σ w^a w'^b,

        E S S' = E X + σσ' E[(1-Y)(1-Y') + X + X² - P_21 - P_12] - 2σ² E[P_21 - XY] - 2σ'² E[P_12 - XY'],

    which is E S² = E Y + σ² E[1 - Y - 6 W3 + 6 Y²] where the two heads are one.
    """
    s, t = torch.broadcast_tensors(
        *(validation.tensor(name, value).to(torch.float64) for name, value in (("scale", scale), ("other", other)))
    )
    x, p21, p12, xx, yy, xy, xz = two_head_moments(length, s, t, OVERLAP)
    y, z = (weight_moments(length, each.abs(), [[(2, 0)]])[0] for each in (s, t))  # all scales in one call
    along = s * t * (1 - y - z + yy + x + xx - p21 - p12) - 2 * s**2 * (p21 - xy) - 2 * t**2 * (p12 - xz)
    return x, along
