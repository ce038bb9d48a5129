"""The split bound: the numerator's variance where the normaliser is large, Cauchy-Schwarz where it is small."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from largeprompt.certificates.ingredients import Ingredients, fractional
from largeprompt.measures import Measure

THETAS = torch.cat([torch.linspace(0.02, 0.9, 89, dtype=torch.float64), 1 - torch.logspace(-1, -4, 61, dtype=torch.float64)])
FRACTIONS = (1.05, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9)


def plain_bounds(moments: Ingredients, length: float) -> tuple[Tensor, Tensor]:
    """Bounds of E‖T_L - T‖² and of √E‖T_L - T‖⁴ that hold because T_L is a weighted average of tokens.

    E Σ w‖ζ‖^k is at most E max_l‖ζ_l‖^k <= L E‖ζ‖^k (an equality at L = 1), at most reach^k, and for L >= 2 at most
    (L/(L-1)) e^{Λ(u) + Λ(-u)} E_u‖ζ‖^k.
    """
    second, fourth = length * moments.second, length * moments.fourth
    if length >= 2:
        factor = length / (length - 1)
        second, fourth = (
            torch.minimum(second, factor * moments.tilted_second),
            torch.minimum(fourth, factor * moments.tilted_fourth),
        )
    fourth = torch.minimum(fourth, moments.reach**4).sqrt()
    return torch.minimum(torch.minimum(second, moments.reach**2), fourth), fourth


def bound(moments: Ingredients, mu: Measure, u: Tensor, V: Tensor, length: float) -> tuple[Any, ...]:
    """Smallest of the available bounds for each query: (bound, leading, remainder, theta, rho, reason), shape (query,)."""
    rho = moments.weight[2.0]
    trivial, fourth = plain_bounds(moments, length)
    theta = THETAS.to(u).unsqueeze(-1)  # (θ, 1)
    leading = moments.numerator[2.0] / length
    remainder = fourth * torch.exp(-length * (1 - theta) ** 2 / (4 * rho))
    first = _finite(leading / theta**2 + remainder)
    # E‖N‖²/D² <= E‖N‖² + 2 E‖N‖²(1-D) + ((1+2θ)/θ²) E‖N‖²(1-D)² where D >= θ
    a2, a3, a4 = (moments.numerator[j] for j in (2.0, 3.0, 4.0))
    skew = -(a3 - a2) / length**2
    square = ((a4 - 2 * a3 + a2) + (length - 1) * (a2 * (rho - 1) + 2 * moments.pull)) / length**3
    second = _finite(leading + 2 * skew + (1 + 2 * theta) / theta**2 * square + remainder)
    best = trivial
    chosen = torch.ones_like(trivial)
    rest = torch.zeros_like(trivial)
    reason = np.array([_vacuous(float(r), length) for r in moments.log_rho], dtype=object)
    for candidates, name in ((first, "split bound"), (second, "split bound, second order")):
        value, index = candidates.min(0)
        level = theta[index, 0]
        better = value < best
        best, chosen = torch.where(better, value, best), torch.where(better, level, chosen)
        rest = torch.where(better, torch.gather(remainder, 0, index[None])[0], rest)
        for i in torch.nonzero(better).flatten().tolist():
            reason[i] = f"{name}, theta = {float(level[i]):.4g}"
    if bool(torch.isinf(rho).any()):
        for p in FRACTIONS:
            value, level, small = _fractional_bound(mu, u, V, length, p, fourth, theta)
            better = torch.isinf(rho) & (value < best)
            best, chosen = torch.where(better, value, best), torch.where(better, level, chosen)
            rest = torch.where(better, small, rest)
            for i in torch.nonzero(better).flatten().tolist():
                reason[i] = f"moment of order {p} only (the cgf is infinite at 2u), theta = {float(level[i]):.4g}"
    return best, leading, rest, chosen, rho, reason


def _finite(values: Tensor) -> Tensor:
    """Infinity in place of the NaN that infinite moments make."""
    return torch.where(torch.isnan(values), torch.inf, values)


def _vacuous(log_rho: float, length: float) -> str:
    """Why nothing better is known than that the output is an average of tokens."""
    if length == 1:
        return "one token: its spread"
    if math.isinf(log_rho):
        return "an average of tokens, no more: the cgf is infinite at 2u"
    rho = f"{math.exp(log_rho):.3g}" if log_rho < 700 else f"e^{log_rho:.0f}"
    return f"an average of tokens, no more: {length:g} tokens are too few against rho = {rho}"


def _fractional_bound(
    mu: Measure, u: Tensor, V: Tensor, length: float, p: float, fourth: Tensor, theta: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Bound from moments of order 1 < p < 2: von Bahr-Esseen for the numerator, interpolated with the fourth moment."""
    weight, numerator = fractional(mu, u, V, p)
    interpolation = 2 / (4 - p)
    main = (2 * length ** (1 - p) * numerator / theta**p) ** interpolation * (fourth**2) ** (1 - interpolation)
    rate = ((1 - theta) * 2 ** (p - 1) / (p * weight)) ** (1 / (p - 1)) * (1 - theta) * (1 - 1 / p)
    small = fourth * torch.exp(-length * rate / 2)
    value, index = _finite(main + small).min(0)
    return value, theta[index, 0], torch.gather(small, 0, index[None])[0]
