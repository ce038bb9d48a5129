"""The split bound, section 2 of docs/mathematics/certificates.md, and what is left of it where the
cgf is infinite at 2u.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from largeprompt.certificates.ingredients import Ingredients, positive, usable

THETAS = torch.cat(
    [
        torch.linspace(0.02, 0.9, 89, dtype=torch.float64),
        1 - torch.logspace(-1, -4, 61, dtype=torch.float64),
    ]
)
FRACTIONS = (1.05, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9)


def plain_bounds(parts: Ingredients, length: float) -> tuple[Tensor, Tensor]:
    """M₂ and √M₄, bounds of E‖T_L - T‖² and √E‖T_L - T‖⁴ that hold because T_L is a weighted
    average of tokens: (cert.4).
    """
    second, fourth = length * parts.second, length * parts.fourth
    if length >= 2:
        factor = length / (length - 1)
        second = torch.minimum(second, factor * parts.tilted_second)
        fourth = torch.minimum(fourth, factor * parts.tilted_fourth)
    fourth = torch.minimum(fourth, parts.reach**4).sqrt()
    return torch.minimum(torch.minimum(second, parts.reach**2), fourth), fourth


def bound(parts: Ingredients, length: float) -> tuple[Any, ...]:
    """Smallest of (cert.4), (cert.6), (cert.8), (cert.9) for each query: (bound, leading,
    remainder, theta, rho, reason).
    """
    rho = parts.rho
    trivial, fourth = plain_bounds(parts, length)
    theta = THETAS.to(trivial).unsqueeze(-1)  # (θ, 1)
    a2, a3, a4 = parts.numerator
    leading = a2 / length
    remainder = fourth * torch.exp(-length * (1 - theta) ** 2 / (4 * rho))  # (cert.5)
    skew = -(a3 - a2) / length**2
    square = ((a4 - 2 * a3 + a2) + (length - 1) * (a2 * (rho - 1) + 2 * parts.pull)) / length**3
    candidates = [
        (leading / theta**2 + remainder, remainder, "split bound"),
        (
            leading + 2 * skew + (1 + 2 * theta) / theta**2 * square + remainder,
            remainder,
            "split bound, second order",
        ),
    ]
    missing = torch.isinf(rho)
    if bool(missing.any()):
        for p in FRACTIONS:
            main, small = _fractional_bound(parts, length, p, fourth, theta)
            value = torch.where(missing, main + small, torch.inf)
            candidates.append(
                (value, small, f"moment of order {p} only (the cgf is infinite at 2u)")
            )
    best, chosen, rest = trivial, torch.ones_like(trivial), torch.zeros_like(trivial)
    reason = np.array(
        [
            _vacuous(*row, length)
            for row in zip(parts.log_rho.tolist(), parts.lost.tolist(), strict=True)
        ],
        dtype=object,
    )
    for values, small, name in candidates:
        value, index = usable(values).min(0)
        level = theta[index, 0]
        better = value < best
        best, chosen = torch.where(better, value, best), torch.where(better, level, chosen)
        rest = torch.where(better, torch.gather(small, 0, index[None])[0], rest)
        for i in torch.nonzero(better).flatten().tolist():
            reason[i] = f"{name}, theta = {float(level[i]):.4g}"
    return positive(best, parts.second), leading, rest, chosen, rho, reason


def _vacuous(log_rho: float, lost: float, length: float) -> str:
    """Why nothing better is known than that the output is an average of tokens."""
    if length == 1:
        return "one token: its spread"
    if math.isinf(log_rho):
        return "an average of tokens, no more: the cgf is infinite at 2u"
    if not lost < 1:
        return (
            "an average of tokens, no more: rounding leaves nothing of rho at scores of this size"
        )
    rho = f"{math.exp(log_rho):.3g}" if log_rho < 700 else f"e^{log_rho:.0f}"
    return f"an average of tokens, no more: {length:g} tokens are too few against rho = {rho}"


def _fractional_bound(
    parts: Ingredients, length: float, p: float, fourth: Tensor, theta: Tensor
) -> tuple[Tensor, Tensor]:
    """Main part and remainder of (cert.9), from moments of order 1 < p < 2."""
    weight, numerator = parts.fractional(p)
    interpolation = 2 / (4 - p)
    main = (2 * length ** (1 - p) * numerator / theta**p) ** interpolation * (fourth**2) ** (
        1 - interpolation
    )
    rate = ((1 - theta) * 2 ** (p - 1) / (p * weight)) ** (1 / (p - 1)) * (1 - theta) * (1 - 1 / p)
    return main, fourth * torch.exp(-length * rate / 2)
