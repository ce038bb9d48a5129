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

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.devices import sheltered
from largeprompt.law.quadrature import Product
from largeprompt.law.table import COLLISIONS, FROZEN, WeightTables
from largeprompt.law.weights import checked_scale, lattice_moments, slopes_at_zero, weight_moments
from largeprompt.measures import Gaussian

Regime = Literal["linear", "heavy", "frozen"]

MANY = 256  # queries from which a table of the moments costs less than the moments themselves
# c1 to c5 of (law.14): factors of E Π_i Σ_l w_l^{a_i}, by the exponents a_i
COMBINATIONS: tuple[dict[tuple[int, ...], int], ...] = (
    {(2,): 1, (2, 2): 2, (3,): -2},
    {(2,): 1, (2, 2): 1, (3,): -2},
    {(2,): 1, (2, 2): 7, (2, 2, 2): 20, (2, 3): -52, (3,): -14, (4,): 38},
    {(2,): 1, (2, 2): 11, (2, 2, 2): 40, (2, 3): -92, (3,): -18, (4,): 58},
    {
        (2,): 1,
        (2, 2): 27,
        (2, 2, 2): 240,
        (2, 2, 2, 2): 840,
        (2, 2, 3): -2880,
        (2, 3): -680,
        (2, 4): 2480,
        (3,): -62,
        (3, 3): 1020,
        (4,): 594,
        (5,): -1580,
    },
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
    found = weight_moments(length, scale, COLLISIONS)
    if variance is not None and variance.requires_grad and bool((scale == 0).any()):
        slopes = (
            torch.tensor(slopes_at_zero(length, COLLISIONS))
            .to(found)
            .reshape(-1, *[1] * (found.dim() - 1))
        )
        found = found + torch.where(scale == 0, slopes * variance, 0.0)
    return CollisionMoments(*found)


def _total(terms: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Sum of terms, and the sum of their sizes (what rounding is proportional to)."""
    return torch.stack(terms).sum(0), torch.stack(terms).abs().sum(0)


def jacobian_statistics(length: float, scale: Tensor) -> JacobianStatistics:
    """Statistics of the softmax-weighted covariance of the scores: (law.14) and (law.15).

    Polynomials in q keep their digits at large L, integrals centered at E S where few tokens carry
    the weight; each entry is taken from the route whose terms are smaller, and so round less.
    """
    powers = sorted({each for combination in COMBINATIONS for each in combination})
    products = [tuple((a, 0) for a in each) for each in powers]
    m = dict(zip(powers, weight_moments(length, scale, products), strict=True))
    q = scale**2
    (c1, s1), (c2, s2), (c3, s3), (c4, s4), (c5, s5) = (
        _total([factor * m[each] for each, factor in combination.items()])
        for combination in COMBINATIONS
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
            stein, _centered(length, scale, m[2,]), strict=True
        )
    )
    return JacobianStatistics(spread, cross, mixed, m[2, 2], c2)


def _centered(length: float, scale: Tensor, collision: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Spread, cross and mixed, and sizes of terms, from A_b = Σ w (ξ - c)^b: κ = A_2 - A_1²."""
    a1, a2, y = (1, 1), (1, 2), (2, 0)
    products: Sequence[Product] = (
        (a2,),
        (a1, a1),
        (a2, a2),
        (a2, a1, a1),
        (a1, a1, a1, a1),
        ((2, 2),),
        (a1, (2, 1)),
        (a1, a1, y),
        (a2, y),
        (y,),
    )
    sigma = scale.detach().cpu().double().reshape(-1).numpy()
    center = sigma * (1 - collision.detach().cpu().double().reshape(-1).numpy())
    values = torch.from_numpy(lattice_moments(length, sigma, center, products)).to(scale)
    values = values.reshape(-1, *scale.shape)
    m2, m11, m22, m211, m1111, b2, m1b1, m11y, m2y, m_y = values
    parts = (
        [m22, -2 * m211, m1111, -2 * m2, 2 * m11, torch.ones_like(m2)],
        [b2, -2 * m1b1, m11y],
        [m2y, -m11y, -m_y],
    )
    return [_total(terms) for terms in parts]


def trace(matrix: Tensor) -> Tensor:
    """Trace of (..., n, n) matrices, shape (...)."""
    return matrix.diagonal(dim1=-2, dim2=-1).sum(-1)


def _scores(mu: Gaussian, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Γu, the standard deviation σ of the scores, of derivative 0 at σ = 0, and their variance."""
    shift = mu.shift(u)
    variance = (u * shift).sum(-1)
    positive = variance > 0
    return shift, torch.where(positive, torch.where(positive, variance, 1.0).sqrt(), 0.0), variance


def _moments(sigma: Tensor, variance: Tensor, lengths: Sequence[float]) -> tuple[Tensor, Tensor]:
    """E Y and E[Y - 6 W3 + 6 Y²], (length, ...): by quadrature for few queries, else by a table."""
    if sigma.numel() < MANY or not float(variance.detach().max()) <= FROZEN:
        sigma = checked_scale(sigma)
        found = [_collision_moments(length, sigma, variance) for length in lengths]
        collisions = torch.stack([one.collision for one in found])
        return collisions, torch.stack([one.along for one in found])
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
        """E‖dT_L/dV - dT/dV‖² for one output, shape (length, ...)."""
        return self.collision * trace(self.mu.covariance) + self.along * self.shift.square().sum(-1)


def jacobian_error(mu: Gaussian, u: Tensor, values: Tensor, length: float) -> Tensor:
    """E‖V(C_L - Γ)‖_F², C_L the softmax-weighted covariance of tokens: formula (law.13)."""
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
