"""The few moments of softmax weights that the law of attention over Gaussian tokens needs.

With S = Σ w ξ, Y = Σ w² and κ = Σ w ξ² - S²: by (law.4) of docs/mathematics/finite_prompt.md, polynomials in q = σ².
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.law import weights
from largeprompt.law.moment import slopes_at_zero, weight_moments
from largeprompt.law.quadrature import Product

P2, P3, P4, P5 = (2, 0), (3, 0), (4, 0), (5, 0)
OUTPUT: tuple[Product, ...] = ((P2,), (P3,), (P2, P2))
JACOBIAN = (*OUTPUT, (P4,), (P2, P2, P2), (P2, P3), (P2, P2, P2, P2), (P2, P2, P3), (P2, P4), (P3, P3), (P5,))
A1, A2 = (1, 1), (1, 2)
CENTRED = ((A2,), (A1, A1), (A2, A2), (A2, A1, A1), (A1, A1, A1, A1), ((2, 2),), (A1, (2, 1)), (A1, A1, P2), (A2, P2), (P2,))


COMBINATIONS = (  # c1 to c5 of (law.14), by the place in JACOBIAN: Y W3 Y² p4 Y³ YW3 Y⁴ Y²W3 Yp4 W3² p5
    {0: 1, 2: 2, 1: -2},
    {0: 1, 2: 1, 1: -2},
    {0: 1, 2: 7, 4: 20, 5: -52, 1: -14, 3: 38},
    {0: 1, 2: 11, 4: 40, 5: -92, 1: -18, 3: 58},
    {0: 1, 2: 27, 4: 240, 6: 840, 7: -2880, 5: -680, 8: 2480, 1: -62, 9: 1020, 3: 594, 10: -1580},
)


class CollisionMoments(NamedTuple):
    """Moments of Y = Σ w² and W3 = Σ w³, each of the shape of the scale."""

    collision: Tensor  # E Y, the probability that two draws from the weights meet
    cube: Tensor  # E W3
    square: Tensor  # E Y²

    @property
    def along(self) -> Tensor:
        """E[Y - 6 W3 + 6 Y²]: E(S - σ)² = E Y + q · along, formula (law.7)."""
        return self.collision - 6 * self.cube + 6 * self.square


class JacobianStatistics(NamedTuple):
    """What the Jacobian's law needs, each of the shape of ``scale``."""

    spread: Tensor  # E(κ - 1)²
    cross: Tensor  # E Σ w² (ξ - S)²
    mixed: Tensor  # E (κ - 1) Y
    collision2: Tensor  # E Y²
    pairs: Tensor  # E[Y - 2 W3 + Y²] = E‖diag(w) - w w^T‖²


def collision_moments(length: float, scale: Any, variance: Tensor | None = None) -> CollisionMoments:
    """E Y, E W3 and E Y² of w = softmax(σξ), ξ_1..ξ_L standard normal: all that the error of attention over Gaussian tokens needs.

    Parameters
    ----------
    length
        L, an integer from 1 to 10^15, or ``math.inf``.
    scale
        σ >= 0; a number, an array or a tensor, differentiable.
    variance
        q = σ² as a tensor that may carry a gradient: second derivatives at σ = 0, where √q has none, pass through it.

    Returns
    -------
    CollisionMoments
        ``collision``, ``cube`` and ``square``, which unpack in this order, and ``along``.

    Examples
    --------
    >>> from largeprompt.law import collision_moments
    >>> y, w3, y2 = collision_moments(10, 1.0)
    >>> print(f"{y:.6f} {w3:.6f} {y2:.6f}")
    0.194687 0.058060 0.042726
    """
    if variance is not None:
        scale, variance = validation.tensor("scale", scale), validation.tensor("variance", variance)
    found = weight_moments(length, scale, OUTPUT)
    if variance is not None and variance.requires_grad and bool((scale == 0).any()):
        slopes = torch.tensor(slopes_at_zero(length, OUTPUT)).to(found).reshape(-1, *[1] * (found.dim() - 1))
        found = found + torch.where(scale == 0, slopes * variance, 0.0)
    return CollisionMoments(*found)


def _total(terms: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Sum of terms, and the sum of their sizes (what rounding is proportional to)."""
    return torch.stack(terms).sum(0), torch.stack(terms).abs().sum(0)


def jacobian_statistics(length: float, scale: Tensor) -> JacobianStatistics:
    """Statistics of the softmax-weighted covariance of the scores: (law.14) and (law.15) of docs/mathematics/finite_prompt.md.

    The polynomials in q keep their digits at large L, integrals centred at E S where few tokens carry the weight; for each entry
    the route whose terms are smaller, and hence round less, is taken.
    """
    m = weight_moments(length, scale, JACOBIAN)
    q = scale**2
    (c1, s1), (c2, s2), (c3, s3), (c4, s4), (c5, s5) = (
        _total([factor * m[i] for i, factor in combination.items()]) for combination in COMBINATIONS
    )
    stein = (
        (c1 + c2 + 2 * (c3 + c4) * q + c5 * q**2, s1 + s2 + 2 * (s3 + s4) * q + s5 * q**2),
        (c2 + c3 * q, s2 + s3 * q),
        (c2 - c1 + (c3 - c4) * q, s1 + s2 + (s3 + s4) * q),
    )
    spread, cross, mixed = (
        # the value of the better route, the gradient of the differentiable one
        value + torch.where(other_size < size, other - value, 0.0).detach()
        for (value, size), (other, other_size) in zip(stein, _centred(length, scale, m[0]), strict=True)
    )
    return JacobianStatistics(spread, cross, mixed, m[2], c2)


def _centred(length: float, scale: Tensor, collision: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Spread, cross and mixed from A_b = Σ w (ξ - c)^b with c = E S: κ = A_2 - A_1², as values and sizes of terms."""
    sigma = scale.detach().cpu().double().reshape(-1).numpy()
    center = sigma * (1 - collision.detach().cpu().double().reshape(-1).numpy())
    values = torch.from_numpy(np.asarray(weights.moments(length, sigma, center, CENTRED))).to(scale)
    a2, a11, a22, a211, a1111, b2, a1b1, a11y, a2y, y = values.reshape(len(CENTRED), *scale.shape)
    parts = [a22, -2 * a211, a1111, -2 * a2, 2 * a11, torch.ones_like(a2)], [b2, -2 * a1b1, a11y], [a2y, -a11y, -y]
    return [_total(terms) for terms in parts]
