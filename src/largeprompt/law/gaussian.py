"""The exact law of attention over L Gaussian tokens, by formula (law.2) of
docs/mathematics/finite_prompt.md.

With S = Σ w ξ, Y = Σ w² and κ = Σ w ξ² - S² every number is a polynomial in q = σ² and a few
moments of the weights: (law.4).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.devices import sheltered
from largeprompt.law.quadrature import Product
from largeprompt.law.table import FROZEN, WeightTables
from largeprompt.law.weights import checked_scale, lattice_moments, slopes_at_zero, weight_moments
from largeprompt.measures import Gaussian

Regime = Literal["linear", "heavy", "frozen"]

# queries from which on a table of the moments, good to 1e-12, costs less than the moments
# themselves
MANY = 256
P2, P3, P4, P5 = (2, 0), (3, 0), (4, 0), (5, 0)
OUTPUT: tuple[Product, ...] = ((P2,), (P3,), (P2, P2))
JACOBIAN = (
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
CENTRED = (
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


# c1 to c5 of (law.14), by the place in JACOBIAN: Y W3 Y² p4 Y³ YW3 Y⁴ Y²W3 Yp4 W3² p5
COMBINATIONS = (
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


@sheltered
def collision_moments(
    length: float, scale: Any, variance: Tensor | None = None
) -> CollisionMoments:
    """E Y, E W3 and E Y² of w = softmax(σξ), ξ_1..ξ_L standard normal: all that the error of
    attention over Gaussian tokens needs.

    Parameters
    ----------
    length
        L, an integer from 1 to 10^15, or ``math.inf``.
    scale
        σ >= 0; a number, an array or a tensor, differentiable.
    variance
        q = σ² as a tensor that may carry a gradient: second derivatives at σ = 0, where √q has
        none, pass through it.

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
    length, scale = validation.length("length", length, allow_infinity=True), checked_scale(scale)
    return _collision_moments(
        length, scale, None if variance is None else validation.tensor("variance", variance)
    )


def _collision_moments(length: float, scale: Tensor, variance: Tensor | None) -> CollisionMoments:
    found = weight_moments(length, scale, OUTPUT)
    if variance is not None and variance.requires_grad and bool((scale == 0).any()):
        slopes = (
            torch.tensor(slopes_at_zero(length, OUTPUT))
            .to(found)
            .reshape(-1, *[1] * (found.dim() - 1))
        )
        found = found + torch.where(scale == 0, slopes * variance, 0.0)
    return CollisionMoments(*found)


def _total(terms: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Sum of terms, and the sum of their sizes (what rounding is proportional to)."""
    return torch.stack(terms).sum(0), torch.stack(terms).abs().sum(0)


def jacobian_statistics(length: float, scale: Tensor) -> JacobianStatistics:
    """Statistics of the softmax-weighted covariance of the scores: (law.14) and (law.15) of
    docs/mathematics/finite_prompt.md.

    The polynomials in q keep their digits at large L, integrals centred at E S where few tokens
    carry the weight; for each entry the route whose terms are smaller, and hence round less, is
    taken.
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
        for (value, size), (other, other_size) in zip(
            stein, _centred(length, scale, m[0]), strict=True
        )
    )
    return JacobianStatistics(spread, cross, mixed, m[2], c2)


def _centred(length: float, scale: Tensor, collision: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Spread, cross and mixed from A_b = Σ w (ξ - c)^b with c = E S: κ = A_2 - A_1², as values and
    sizes of terms.
    """
    sigma = scale.detach().cpu().double().reshape(-1).numpy()
    center = sigma * (1 - collision.detach().cpu().double().reshape(-1).numpy())
    values = torch.from_numpy(np.asarray(lattice_moments(length, sigma, center, CENTRED))).to(scale)
    a2, a11, a22, a211, a1111, b2, a1b1, a11y, a2y, y = values.reshape(len(CENTRED), *scale.shape)
    parts = (
        [a22, -2 * a211, a1111, -2 * a2, 2 * a11, torch.ones_like(a2)],
        [b2, -2 * a1b1, a11y],
        [a2y, -a11y, -y],
    )
    return [_total(terms) for terms in parts]


def trace(matrix: Tensor) -> Tensor:
    """Trace of (..., n, n) matrices, shape (...)."""
    return matrix.diagonal(dim1=-2, dim2=-1).sum(-1)


def _scores(mu: Gaussian, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Γu, the standard deviation σ = √(u^T Γ u) of the scores, with derivative 0 at σ = 0, and
    their variance.
    """
    shift = mu.shift(u)
    variance = (u * shift).sum(-1)
    positive = variance > 0
    return shift, torch.where(positive, torch.where(positive, variance, 1.0).sqrt(), 0.0), variance


def _moments(sigma: Tensor, variance: Tensor, lengths: Sequence[float]) -> tuple[Tensor, Tensor]:
    """E Y and E[Y - 6 W3 + 6 Y²], each (length, ...): by quadrature for few queries, from a table
    of them for many.
    """
    if sigma.numel() < MANY or not float(variance.detach().max()) <= FROZEN:
        sigma = checked_scale(sigma)
        found = [_collision_moments(length, sigma, variance) for length in lengths]
        return torch.stack([one.collision for one in found]), torch.stack(
            [one.along for one in found]
        )
    finite = [i for i, length in enumerate(lengths) if math.isfinite(length)]
    q = variance.to(torch.float64).clamp_min(0.0)
    y = along = q.new_zeros(len(lengths), *q.shape)
    if finite:
        tables = WeightTables.reaching([lengths[i] for i in finite], float(q.detach().max()))
        f, h = tables(q.expand(len(finite), *q.shape))
        places = torch.tensor(finite, device=q.device)
        y, along = y.index_copy(0, places, f), along.index_copy(0, places, f - 6 * h)
    return y.to(sigma.dtype), along.to(sigma.dtype)


@dataclasses.dataclass(frozen=True)
class OutputLaws:
    """Law of the output for each length: lengths lead, then heads and queries.

    bias = -E[Y] VΓu; Cov T_L = E[Y] VΓV^T + (a - E[Y]²) VΓuu^TΓV^T; mse = E[Y] tr VΓV^T + a ‖VΓu‖²,
    a = E[Y - 6 W3 + 6 Y²]: formulas (law.8) to (law.10) of docs/mathematics/finite_prompt.md.
    """

    mu: Gaussian
    values: Tensor
    shift: Tensor  # Γu
    collision: Tensor  # E Y
    along: Tensor  # a

    @classmethod
    def of(cls, mu: Gaussian, u: Tensor, values: Tensor, lengths: Sequence[float]) -> OutputLaws:
        """Laws for tilts u and each of several lengths."""
        shift, sigma, variance = _scores(mu, u)
        more = (1,) * max(0, values.dim() - 2 - sigma.dim())  # heads that V has and U has not
        y, along = (
            found.reshape(len(lengths), *more, *sigma.shape)
            for found in _moments(sigma, variance, lengths)
        )
        return cls(mu, values, shift, y, along)

    @property
    def _read(self) -> Tensor:
        """VΓu."""
        return (self.values @ self.shift.unsqueeze(-1)).squeeze(-1)

    @property
    def bias(self) -> Tensor:
        """E T_L - T, shape (length, ..., o)."""
        return -self.collision.unsqueeze(-1) * self._read

    def covariance(self) -> Tensor:
        """Cov T_L, shape (length, ..., o, o)."""
        read, y = self._read, self.collision[..., None, None]
        spread = self.values @ self.mu.covariance @ self.values.mT
        return y * spread + (self.along[..., None, None] - y**2) * (
            read.unsqueeze(-1) * read.unsqueeze(-2)
        )

    def errors(self) -> Tensor:
        """E‖T_L - T‖², shape (length, ...)."""
        spread = ((self.values @ self.mu.covariance) * self.values).sum(dim=(-2, -1))
        return self.collision * spread + self.along * self._read.square().sum(-1)

    def errors_without_values(self) -> Tensor:
        """The same for V = I."""
        return self.collision * trace(self.mu.covariance) + self.along * self.shift.square().sum(-1)


def jacobian_error(mu: Gaussian, u: Tensor, values: Tensor, length: float) -> Tensor:
    """E‖V(C_L - Γ)‖_F², C_L the softmax-weighted covariance of tokens: formula (law.13) of
    docs/mathematics/finite_prompt.md.
    """
    shift, sigma, _ = _scores(mu, u)
    statistics = jacobian_statistics(length, sigma)
    safe = torch.where(sigma > 0, sigma, 1.0)
    e = torch.where((sigma > 0).unsqueeze(-1), shift / safe.unsqueeze(-1), 0.0)
    rest = mu.covariance - e.unsqueeze(-1) * e.unsqueeze(-2)  # G
    gram = values.mT @ values  # B
    read_e = (values @ e.unsqueeze(-1)).squeeze(-1)
    weighted = gram @ rest  # BG
    along, across = read_e.square().sum(-1), e.square().sum(-1)
    mixed = torch.einsum("...i,...ij,...j->...", e, weighted, e)
    square = (weighted * rest.mT).sum(dim=(-2, -1))  # tr BG²
    return (
        statistics.spread * along * across
        + statistics.cross * (along * trace(rest) + across * trace(weighted) + 2 * mixed)
        - 2 * statistics.mixed * mixed
        + statistics.collision2 * square
        + statistics.pairs * (trace(weighted) * trace(rest) + square)
    )


def regime(score_variance: float, length: float) -> Regime:
    """Name the regime of softmax attention with Gaussian scores of this variance over this many
    tokens.

    With α = σ/√(2 ln L): 'linear' for α < 1/2 (L > e^{2σ²}), 'heavy' for 1/2 <= α < 1 (rare large
    tokens set the error), 'frozen' for α >= 1 (L <= e^{σ²/2}; few tokens carry the weight): formula
    (reg.1) of docs/mathematics/regimes.md.

    Parameters
    ----------
    score_variance
        σ² = u^TΓu.
    length
        L, an integer from 1 to 10^15, or ``math.inf``.

    Returns
    -------
    str
        'linear', 'heavy' or 'frozen'.

    Examples
    --------
    >>> from largeprompt.law import regime
    >>> [regime(2.0, length) for length in (2, 10, 100)]
    ['frozen', 'heavy', 'linear']
    """
    score_variance = validation.number("score_variance", score_variance, minimum=0)
    length = validation.length("length", length, allow_infinity=True)
    if score_variance == 0 or math.isinf(length):
        return "linear"
    twice_log = 2 * math.log(length)
    if twice_log > 4 * score_variance:
        return "linear"
    return "heavy" if twice_log > score_variance else "frozen"
