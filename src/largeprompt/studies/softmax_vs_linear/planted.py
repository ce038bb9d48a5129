"""Moments of softmax weights when the score of one token among L is shifted: the token that
attention should find.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.law.quadrature import drawn, largest_tau, power
from largeprompt.studies.softmax_vs_linear.lattice import check_scores, integrate, kind


class PlantedMoments(NamedTuple):
    """Moments of the weights with one planted token, each of the shape of the arguments.

    ``found`` is E w_ε, the weight of the planted token; ``missed`` 1 - E w_ε, with its digits where
    the token is surely found; ``found_square`` E w_ε²; ``collision`` E Y, Y = Σ w²; ``product`` E Y
    w_ε; ``imbalance`` E[W_3 - Y²].
    """

    found: Tensor
    missed: Tensor
    found_square: Tensor
    collision: Tensor
    product: Tensor
    imbalance: Tensor


def planted_moments(length: float, variance: Any, shift: Any) -> PlantedMoments:
    """E w_ε, 1 - E w_ε, E w_ε², E Y, E Y w_ε and E[W_3 - Y²] for scores of variance q, one of them
    shifted by δ.

    Formula (quad.12) of docs/mathematics/quadrature.md; the cost does not depend on L.

    Parameters
    ----------
    length
        L, from 1 to 10^15, or ``math.inf``: the number of tokens, the planted one included.
    variance, shift
        q >= 0 and δ; numbers, arrays or float64 tensors that broadcast, differentiable (twice).

    Returns
    -------
    PlantedMoments
        The six moments, each of the shape to which the arguments broadcast.

    Examples
    --------
    >>> from largeprompt.studies.softmax_vs_linear.planted import planted_moments
    >>> moments = planted_moments(1000, 9.0, 9.0)  # q = δ: the weights are the posterior of the location, and E w_ε = E Y
    >>> print(f"{moments.found:.10f} {moments.collision:.10f} {1 - moments.missed:.10f}")
    0.2672717642 0.2672717642 0.2672717642
    """
    tokens = validation.length("length", length, allow_infinity=True)
    q, delta = validation.tensor("variance", variance), validation.tensor("shift", shift)
    for name, value in (("variance", q), ("shift", delta)):
        if value.dtype != torch.float64:
            raise InvalidArgumentError(
                name, f"dtype {value.dtype}", "float64", f"Use {name}.to(torch.float64)."
            )
    if bool((q < 0).any()):
        raise InvalidArgumentError(
            "variance", f"{float(q.detach().min()):.6g}", "nonnegative numbers"
        )
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
    others = length - 1

    def integrands(start: float, count: int) -> list[Tensor]:
        plain, planted = kind(start, count, 0 * delta, q, 3), kind(start, count, delta, q, 3)
        (G1, G2, G3), (g1, g2, g3), psi = plain.G, planted.G, planted.kept
        once = power(plain.log_phi, others)
        twice, thrice = (drawn(others, k, plain.log_phi) for k in (1, 2))
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
    above = min(5 + 10.5 * sigma, largest_tau(length, sigma, math.sqrt(float(q.detach().min()))))
    found, missed, square, elsewhere, product, imbalance = integrate(
        integrands, below, max(above, -below + 20 - low)
    )
    return found, missed, square, square + elsewhere, product, imbalance
