"""Moments that mix the weights of two softmaxes over the same tokens: two heads whose tilts point
along one line.

Formula (quad.13) of docs/mathematics/quadrature.md, at a cost that does not depend on L.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.law.quadrature import (
    LARGEST_EXPONENT,
    Array,
    Product,
    Range,
    Term,
    blocks_of,
    largest_tau,
    log_survival,
    partition_integrals,
)
from largeprompt.law.weights import Combination, integer_pairs, moments, weight_moments
from largeprompt.measures.score_nodes import NORMAL_REACH

PLANE_STEP = (
    # of τ, τ' and of the scores: integrands are analytic for |Im τ| < π/2, so the trapezoid rule
    # errs by e^{-π²/PLANE_STEP}
    0.25
)
# what the integrand may still be at the ends of the range, relative to its largest value
EDGE = 1e-16
LARGEST_STEP = 0.5  # of ξ
LARGEST_SCALE = 12.0  # beyond, the plane of (τ, τ') takes seconds
MOST_FACTORS = 4
LARGEST_POWER = 8


def _axis(length: float, scale: float, order: int) -> Range:
    """Range of τ for one head whose exponents add up to ``order``, before anything is known of the
    integrand.
    """
    below = math.log(length) + min(scale**2, 6 * scale) + 40.0 / order
    return below, min(5 + (1 + math.sqrt(80 / length)) * scale, largest_tau(length, scale, scale))


def _integrate(length: float, scales: tuple[float, float], products: Sequence[Product]) -> Array:
    """Quadrature in the plane for 1 < L < ∞ and products in which both heads appear."""
    needed = blocks_of(products)
    tilts = [a * scales[0] + b * scales[1] for a, b in needed] + [0.0]
    size = max(abs(scale) for scale in scales)
    step = min(LARGEST_STEP, PLANE_STEP / size) if size > 0 else LARGEST_STEP
    xi = step * np.arange(
        math.floor((min(tilts) - NORMAL_REACH) / step),
        math.ceil((max(tilts) + NORMAL_REACH) / step) + 1,
    )
    xi = xi[np.abs(xi) < 39.0]  # beyond, the density underflows
    density = np.exp(-(xi**2) / 2) * (step / math.sqrt(2 * math.pi))
    orders = [min(sum(term[i] for term in product) for product in products) for i in (0, 1)]

    def blocks(*ranges: Range) -> tuple[Array, dict[Term, Array]]:
        heads = []
        for scale, (below, above) in zip(scales, ranges, strict=True):
            tau = PLANE_STEP * np.arange(
                math.floor(-below / PLANE_STEP), math.ceil(above / PLANE_STEP) + 1
            )
            # scores, (τ, ξ); beyond, all is 0 or 1
            heads.append(np.minimum(tau[:, None] + scale * xi, LARGEST_EXPONENT + 1))
        grown = [np.exp(s) for s in heads]
        kept, lost = [np.exp(-g) for g in grown], [-np.expm1(-g) for g in grown]
        powers = [
            {n: np.exp(n * s - g) if n else k for n in {block[i] for block in needed}}
            for i, (s, g, k) in enumerate(zip(heads, grown, kept, strict=True))
        ]
        log_phi = log_survival(
            (lost[0] @ density)[:, None] + (kept[0] * density) @ lost[1].T,
            (kept[0] * density) @ kept[1].T,
        )
        return log_phi, {(a, b): (powers[0][a] * density) @ powers[1][b].T for a, b in needed}

    ranges = [_axis(length, abs(scale), order) for scale, order in zip(scales, orders, strict=True)]
    return partition_integrals(
        length, products, blocks, *ranges, step=PLANE_STEP, further=7.0 + size, edge=EDGE
    )


def _values(length: float, scales: tuple[float, float], products: Sequence[Product]) -> Array:
    """All products at one pair of scales; those of one head alone go to
    the one-dimensional rule.
    """
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
            result[alone] = weight_moments(length, abs(scales[i]), powers).cpu().numpy()
    return result


def _simplified(product: Sequence[Term]) -> Product:
    """Without the factors Σ w = Σ w' = 1, in a fixed order; (1, 0) where nothing else is left."""
    return tuple(sorted(term for term in product if term not in ((1, 0), (0, 1)))) or ((1, 0),)


def _moved(head: int, local: Term, product: Product) -> list[tuple[float, Term, Product]]:
    """Derivative of w_l^a w'_l^b Π P in the score of token l of one head, from dw_k = w_k (1[k =
    l] - w_l).
    """
    unit = (1, 0) if head == 0 else (0, 1)
    a, b = local
    raised = a + unit[0], b + unit[1]
    found = (
        [(float(local[head]), local, product), (-float(local[head]), raised, product)]
        if local[head]
        else []
    )
    for j, term in enumerate(product):
        if term[head] and term != unit:
            others = product[:j] + product[j + 1 :]
            found += [
                (float(term[head]), (a + term[0], b + term[1]), others),
                (-float(term[head]), raised, product),
            ]
    return found


def _derivative(product: Product, head: int, scales: tuple[Tensor, ...]) -> Combination:
    """Derivative of E Π P in the scale of one head, as a combination of moments of the same kind.

    d/dσ E F = E Σ_l ξ_l ∂F/∂s_l = σ E Σ_l ∂²F/∂s_l² + σ' E Σ_l ∂²F/∂s_l∂s'_l with s = σξ, s' = σ'ξ:
    Stein's identity once.
    """
    total: Counter[tuple[int, Product]] = Counter()
    for first, local, rest in _moved(head, (0, 0), product):
        for other in (0, 1):
            for second, place, left in _moved(other, local, rest):
                total[other, _simplified((place, *left))] += first * second  # type: ignore[assignment]
    return [(factor * scales[other], terms) for (other, terms), factor in total.items() if factor]


def _products(products: Any) -> tuple[Product, ...]:
    found = (
        tuple(map(integer_pairs, products)) if isinstance(products, Sequence | np.ndarray) else ()
    )
    good = [
        1 <= len(powers) <= MOST_FACTORS
        and all(a >= 0 and b >= 0 and a + b >= 1 for a, b in powers)
        and sum(map(sum, powers)) <= LARGEST_POWER
        for powers in found
    ]
    if not good or not all(good):
        allowed = (
            f"lists of one to {MOST_FACTORS} pairs of integers (a, b), a, b >= 0, not both "
            f"0, {LARGEST_POWER} at most in all"
        )
        raise InvalidArgumentError(
            "products", validation.text(products), allowed, "E Σ w w' is products=[[(1, 1)]]."
        )
    return found


def _scales(scale: Any, other: Any) -> tuple[Tensor, Tensor]:
    found = []
    for name, given in (("scale", scale), ("other", other)):
        value = validation.tensor(name, given)
        if value.numel() and (size := float(value.detach().abs().max())) > LARGEST_SCALE:
            raise InvalidArgumentError(
                name, f"{size:.6g} in size", f"numbers from -{LARGEST_SCALE:g} to {LARGEST_SCALE:g}"
            )
        found.append(value.to(torch.float64))
    shape = validation.broadcast("scale and other", *(value.shape for value in found))
    first, second = (value.expand(shape) for value in found)
    return first, second


def two_head_moments(length: float, scale: Any, other: Any, products: Sequence[Any]) -> Tensor:
    """E Π_j Σ_l w_l^{a_j} w'_l^{b_j} for w = softmax(σξ) and w' = softmax(σ'ξ) over the same
    ξ_1..ξ_L, standard normal.

    Two heads read the same prompt with tilts along one line, opposite ones (σ' = -σ) included.
    Relative error about 1e-13, at a cost that does not depend on the length; differentiable in both
    scales.

    Parameters
    ----------
    length
        L, an integer from 1 to 10^15, or ``math.inf``.
    scale, other
        σ and σ', each from -12 to 12; numbers, arrays or tensors, broadcast together.
    products
        Lists of pairs (a_j, b_j): [(1, 1)] is the overlap E Σ w w', [(2, 0), (0, 2)] is E Σ w² Σ
        w'².

    Returns
    -------
    Tensor
        Shape ``(len(products), *broadcast shape)``.

    Examples
    --------
    >>> overlap, = two_head_moments(10**9, 1.0, -1.0, [[(1, 1)]])
    >>> print(f"{1e9 * overlap:.6f} {math.exp(-1):.6f}")  # e^{σσ'} / L for long prompts
    0.367879 0.367879
    """
    first, second = _scales(scale, other)
    tokens = validation.length("length", length, allow_infinity=True)

    def evaluate(scales: Array, wanted: Sequence[Product]) -> Array:
        found = [_values(tokens, (float(s), float(t)), wanted) for s, t in scales]
        return np.stack(found, axis=-1) if found else np.zeros((len(wanted), 0))

    return moments(evaluate, _derivative, _products(products), first, second)


OVERLAP = (
    ((1, 1),),
    ((2, 1),),
    ((1, 2),),
    ((1, 1), (1, 1)),
    ((2, 0), (0, 2)),
    ((1, 1), (2, 0)),
    ((1, 1), (0, 2)),
)


def two_head_overlap(length: float, scale: Any, other: Any) -> tuple[Tensor, Tensor]:
    """X = E Σ w w' and E S S' - X: with e = Γu/σ, E(T - m)(T' - m)^T = X Γ + (E S S' - X) ee^T for
    two heads with collinear tilts.

    By Stein's identity, with Y = Σ w², Y' = Σ w'², X = Σ w w' and P_ab = Σ w^a w'^b,

        E S S' = E X + σσ' E[(1-Y)(1-Y') + X + X² - P_21 - P_12] - 2σ² E[P_21 - XY] - 2σ'² E[P_12 -
        XY'],

    which is E S² = E Y + σ² E[1 - Y - 6 W3 + 6 Y²] where the two heads are one. Arguments as for
    :func:`two_head_moments`.

    Examples
    --------
    >>> from largeprompt.studies.softmax_vs_linear.two_heads import two_head_overlap
    >>> overlap, rest = two_head_overlap(math.inf, 0.5, -0.7)  # long prompts share no token, and S = σ, S' = σ'
    >>> print(f"{overlap:.2f} {rest:.2f}")
    0.00 -0.35
    """
    s, t = _scales(scale, other)
    x, p21, p12, xx, yy, xy, xz = two_head_moments(length, s, t, OVERLAP)
    # all scales in one call
    y, z = (weight_moments(length, each.abs(), [[(2, 0)]])[0] for each in (s, t))
    along = (
        s * t * (1 - y - z + yy + x + xx - p21 - p12)
        - 2 * s**2 * (p21 - xy)
        - 2 * t**2 * (p12 - xz)
    )
    return x, along
