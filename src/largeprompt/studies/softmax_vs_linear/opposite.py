"""Moments that mix the weights of two softmaxes with opposite tilts over the same tokens.

Formula (quad.13) of docs/mathematics/quadrature.md, at a cost that does not depend on L. For
opposite tilts w_l w'_l = 1/(ZZ') is the same for all tokens, so that with X = Σ w w' = L/(ZZ'),
Σ w² w' = X/L.
"""

import math

import numpy as np

from largeprompt.law.quadrature import (
    LARGEST_EXPONENT,
    Array,
    Range,
    Term,
    blocks_of,
    largest_tau,
    log_survival,
    partition_integrals,
)
from largeprompt.law.weights import weight_moments
from largeprompt.measures.score_nodes import NORMAL_REACH

# of τ, τ' and of the scores: integrands are analytic for |Im τ| < π/2, so the trapezoid rule errs
# by e^{-π²/PLANE_STEP}
PLANE_STEP = 0.25
PRODUCTS = (((1, 1),), ((1, 1), (1, 1)), ((2, 0), (0, 2)), ((1, 1), (2, 0)))


def _integrals(length: float, scale: float) -> Array:
    """E X, E X², E YY' and E XY for 1 < L < ∞, Y = Σ w²."""
    needed = blocks_of(PRODUCTS)
    reach = max(abs(a - b) for a, b in needed) * scale + NORMAL_REACH
    step = min(2 * PLANE_STEP, PLANE_STEP / scale)
    xi = step * np.arange(-math.ceil(reach / step), math.ceil(reach / step) + 1)
    xi = xi[np.abs(xi) < 39.0]  # beyond, the density underflows
    density = np.exp(-(xi**2) / 2) * (step / math.sqrt(2 * math.pi))

    def blocks(*ranges: Range) -> tuple[Array, dict[Term, Array]]:
        heads = []
        for sign, (below, above) in zip((1, -1), ranges, strict=True):
            first, last = math.floor(-below / PLANE_STEP), math.ceil(above / PLANE_STEP)
            tau = PLANE_STEP * np.arange(first, last + 1)
            # scores, (τ, ξ); beyond, all is 0 or 1
            heads.append(np.minimum(tau[:, None] + sign * scale * xi, LARGEST_EXPONENT + 1))
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

    top = 5 + (1 + math.sqrt(80 / length)) * scale
    axis = (
        math.log(length) + min(scale**2, 6 * scale) + 40.0,
        min(top, largest_tau(length, scale, scale)),
    )
    return partition_integrals(
        length, PRODUCTS, blocks, axis, axis, step=PLANE_STEP, further=7.0 + scale
    )


def opposite_overlap(length: float, scales: Array) -> tuple[Array, Array]:
    """X = E Σ w w' and E SS' - X of two heads with tilts of scales σ and -σ, by Stein's identity.

    With e = Γu/σ, E (T - m)(T' - m)ᵀ = X Γ + (E SS' - X) eeᵀ.
    """
    x, xx, yy, xy = np.stack([_integrals(length, float(scale)) for scale in scales], -1)
    y = weight_moments(length, scales, [[(2, 0)]])[0].numpy()
    both, third = 1 - 2 * y + yy + x + xx, x / length  # E Σ w² w' = E X/L
    return x, -(scales**2) * (both - 2 * third) - 4 * scales**2 * (third - xy)
