"""Moments of softmax weights when the score of one token among L is shifted: the token that attention should find.

Scores σξ_l + δ 1[l = ε], ξ standard normal, w their softmax, Y = Σ w², W_3 = Σ w³. With G_a and φ the block expectations of an
ordinary token (:mod:`largeprompt.law.lattice`) and g_a, ψ those of the planted one, the rule of
:mod:`largeprompt.law.weights` gives

    E w_ε = ∫ φ^{L-1} g_1 dτ,   1 - E w_ε = (L-1) ∫ φ^{L-2} ψ G_1 dτ,   E w_ε² = ∫ φ^{L-1} g_2 dτ,
    E Y = E w_ε² + (L-1) ∫ φ^{L-2} ψ G_2 dτ,   E Y w_ε = ½ ∫ φ^{L-1} g_3 dτ + ½(L-1) ∫ φ^{L-2} G_2 g_1 dτ,
    E[W_3 - Y²] = (L-1)/6 ∫ φ^{L-2} (g_3 G_1 + g_1 G_3 - 2 g_2 G_2) dτ + (L-1)(L-2)/6 ∫ φ^{L-3} ψ (G_3 G_1 - G_2²) dτ,

the last from W_3 - Y² = ½ Σ_{l≠m} w_l w_m (w_l - w_m)². The cost does not depend on L.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, NamedTuple

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.law.lattice import check_scores, integrate, kind, power


class PlantedMoments(NamedTuple):
    """Moments of the weights with one planted token, each of the shape of the arguments.

    ``found`` is E w_ε, the weight of the planted token; ``missed`` 1 - E w_ε, with its digits where the token is surely found;
    ``found_square`` E w_ε²; ``concentration`` E Y, Y = Σ w²; ``product`` E Y w_ε; ``imbalance`` E[W_3 - Y²].
    """

    found: Tensor
    missed: Tensor
    found_square: Tensor
    concentration: Tensor
    product: Tensor
    imbalance: Tensor


def planted_moments(length: Any, variance: Any, shift: Any) -> PlantedMoments:
    """E w_ε, 1 - E w_ε, E w_ε², E Y, E Y w_ε and E[W_3 - Y²] for scores of variance q, one of them shifted by δ.

    Parameters
    ----------
    length
        L, from 1 to 10^15, or ``math.inf``: the number of tokens, the planted one included.
    variance, shift
        q >= 0 and δ; numbers, arrays or float64 tensors that broadcast, differentiable (twice).

    Examples
    --------
    >>> from largeprompt.law import planted_moments
    >>> moments = planted_moments(1000, 9.0, 9.0)  # q = δ: the weights are the posterior of the location, and E w_ε = E Y
    >>> print(f"{moments.found:.10f} {moments.concentration:.10f} {1 - moments.missed:.10f}")
    0.2672717642 0.2672717642 0.2672717642
    """
    tokens = validation.length("length", length, allow_infinity=True)
    q, delta = validation.tensor("variance", variance), validation.tensor("shift", shift)
    for name, value in (("variance", q), ("shift", delta)):
        if value.dtype != torch.float64:
            raise InvalidArgumentError(name, f"dtype {value.dtype}", "float64")
    if bool((q < 0).any()):
        raise InvalidArgumentError("variance", f"{float(q.detach().min()):.6g}", "nonnegative numbers")
    shape = validation.broadcast("variance and shift", q.shape, delta.shape)
    check_scores(delta, q)
    flat = (q.expand(shape).reshape(-1), delta.expand(shape).reshape(-1))
    values = _moments(tokens, *flat) if flat[0].numel() else (flat[0],) * 6
    return PlantedMoments(*(value.reshape(shape) for value in values))


def _moments(length: float, q: Tensor, delta: Tensor) -> tuple[Tensor, ...]:
    zero = 0 * (q + delta)
    if length == 1:
        return 1 + zero, zero, 1 + zero, 1 + zero, 1 + zero, zero
    if math.isinf(length):
        return zero, 1 + zero, zero, zero, zero, zero
    others, pairs = length - 1, (length - 1) * (length - 2)

    def integrands(start: float, count: int) -> list[Tensor]:
        plain, planted = kind(start, count, 0 * delta, q, 3), kind(start, count, delta, q, 3)
        (G1, G2, G3), (g1, g2, g3), psi = plain.G, planted.G, planted.kept
        once, twice = power(plain.log_phi, length - 1), others * power(plain.log_phi, length - 2)
        thrice = pairs * power(plain.log_phi, length - 3)
        return [
            once * g1,
            twice * psi * G1,
            once * g2,
            twice * psi * G2,
            (once * g3 + twice * G2 * g1) / 2,
            (twice * (g3 * G1 + g1 * G3 - 2 * g2 * G2) + thrice * psi * (G3 * G1 - G2**2)) / 6,
        ]

    sigma = math.sqrt(float(q.detach().max()))
    high, low = max(float(delta.detach().max()), 0.0), min(float(delta.detach().min()), 0.0)
    below = 44 + max(math.log(length) + min(1.5 * sigma**2, 10 * sigma), high + 10 * sigma)
    above = 5 + 10.5 * sigma
    if length >= 200:
        # 1 - φ >= P(s > 0)(1 - 1/e), so φ^{L-3} < e^{-45} once P(s > 0) = Φ(τ/σ) exceeds 80/L
        quantile = NormalDist().inv_cdf(80 / length)
        above = min(above, 1 + max(quantile * sigma, quantile * math.sqrt(float(q.detach().min()))))
    found, missed, square, elsewhere, product, imbalance = integrate(integrands, below, max(above, -below + 20 - low))
    return found, missed, square, square + elsewhere, product, imbalance
