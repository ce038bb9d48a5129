"""The few numbers of the softmax weights that the law of attention over Gaussian tokens needs.

With S = Σ w ξ, Y = Σ w², κ = Σ w ξ² - S² and q = σ², Stein's identity E ξ_l f = E ∂f/∂ξ_l turns every moment into a polynomial in q
whose coefficients are moments of the weights alone.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from torch import Tensor

from largeprompt.law import weights
from largeprompt.law.moment import weight_moments
from largeprompt.law.partitions import Term

P2, P3, P4, P5 = (2, 0), (3, 0), (4, 0), (5, 0)
OUTPUT: tuple[tuple[Term, ...], ...] = ((P2,), (P3,), (P2, P2))
JACOBIAN: tuple[tuple[Term, ...], ...] = (
    *OUTPUT,
    (P4,),
    (P2, P2, P2),
    (P2, P3),
    (P2, P2, P2, P2),
    (P2, P2, P3),
    (P2, P4),
    (P3, P3),
    (P5,),
)
A1, A2 = (1, 1), (1, 2)
CENTRED: tuple[tuple[Term, ...], ...] = (
    (A2,),
    (A1, A1),
    (A2, A2),
    (A2, A1, A1),
    (A1, A1, A1, A1),
    ((2, 2),),
    (A1, (2, 1)),
    (A1, A1, P2),
    (A2, P2),
    (P2,),
)


@dataclasses.dataclass(frozen=True, eq=False)
class OutputStatistics:
    """What the output's law needs, each of the shape of ``scale``."""

    collision: Tensor  # E Y, the probability that two draws from the weights meet
    along: Tensor  # E[Y - 6 W3 + 6 Y²]: E(S - σ)² = E Y + q · along


@dataclasses.dataclass(frozen=True, eq=False)
class JacobianStatistics:
    """What the Jacobian's law needs, each of the shape of ``scale``."""

    spread: Tensor  # E(κ - 1)²
    cross: Tensor  # E Σ w² (ξ - S)²
    mixed: Tensor  # E (κ - 1) Y
    collision2: Tensor  # E Y²
    pairs: Tensor  # E[Y - 2 W3 + Y²] = E‖diag(w) - w w^T‖²


def output_statistics(length: float, scale: Tensor) -> OutputStatistics:
    """Return E Y and E[Y - 6 W3 + 6 Y²]."""
    y, w3, y2 = weight_moments(length, scale, OUTPUT)
    return OutputStatistics(y, y - 6 * w3 + 6 * y2)


def _combine(coefficients: dict[int, float], moments: Tensor) -> tuple[Tensor, Tensor]:
    """Linear combination of moments, and the sum of the sizes of its terms (what rounding is proportional to)."""
    terms = [factor * moments[i] for i, factor in coefficients.items()]
    return torch.stack(terms).sum(0), torch.stack(terms).abs().sum(0)


def jacobian_statistics(length: float, scale: Tensor) -> JacobianStatistics:
    """Statistics of the softmax-weighted covariance of the scores.

    By Stein polynomials in q, which keep their digits at large L, or by integrals centred at E S, which keep them where few tokens
    carry the weight; for each entry the route whose terms are smaller, and hence round less, is taken.
    """
    m = weight_moments(length, scale, JACOBIAN)  # Y W3 Y² p4 Y³ YW3 Y⁴ Y²W3 Yp4 W3² p5
    q = scale**2
    c1, s1 = _combine({0: 1, 2: 2, 1: -2}, m)
    c2, s2 = _combine({0: 1, 2: 1, 1: -2}, m)
    c3, s3 = _combine({0: 1, 2: 7, 4: 20, 5: -52, 1: -14, 3: 38}, m)
    c4, s4 = _combine({0: 1, 2: 11, 4: 40, 5: -92, 1: -18, 3: 58}, m)
    c5, s5 = _combine(
        {0: 1, 2: 27, 4: 240, 6: 840, 7: -2880, 5: -680, 8: 2480, 1: -62, 9: 1020, 3: 594, 10: -1580},
        m,
    )
    stein = {
        "spread": (c1 + c2 + 2 * (c3 + c4) * q + c5 * q**2, s1 + s2 + 2 * (s3 + s4) * q + s5 * q**2),
        "cross": (c2 + c3 * q, s2 + s3 * q),
        "mixed": (c2 - c1 + (c3 - c4) * q, s1 + s2 + (s3 + s4) * q),
    }
    centred = _centred(length, scale, m[0])
    best = {}
    for name, (value, size) in stein.items():
        other, other_size = centred[name]
        # the value of the better route, the gradient of the differentiable one
        best[name] = value + torch.where(other_size < size, other - value, 0.0).detach()
    return JacobianStatistics(best["spread"], best["cross"], best["mixed"], m[2], c2)


def _centred(length: float, scale: Tensor, collision: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """The same statistics from A_b = Σ w (ξ - c)^b with c = E S: κ = A_2 - A_1², as values and sizes of terms."""
    sigma = scale.detach().cpu().double().reshape(-1).numpy()
    center = sigma * (1 - collision.detach().cpu().double().reshape(-1).numpy())
    values = torch.from_numpy(np.asarray(weights.moments(length, sigma, center, CENTRED))).to(scale)
    a2, a11, a22, a211, a1111, b2, a1b1, a11y, a2y, y = values.reshape(len(CENTRED), *scale.shape)
    one = torch.ones_like(a2)
    parts = {
        "spread": [a22, -2 * a211, a1111, -2 * a2, 2 * a11, one],
        "cross": [b2, -2 * a1b1, a11y],
        "mixed": [a2y, -a11y, -y],
    }
    return {name: (torch.stack(terms).sum(0), torch.stack(terms).abs().sum(0)) for name, terms in parts.items()}
