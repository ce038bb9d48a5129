"""A law along some tilts: its cumulant generating function at complex multiples of them, with the digits that contours need."""

import dataclasses
import functools
import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from largeprompt.errors import InvalidArgumentError
from largeprompt.law.tokens import Array, Dense, Independent, Numbers, TokenMoments
from largeprompt.measures import Measure
from largeprompt.measures.scalar.product import ProductMeasure

REACH = 30.0  # of ω: Γ falls like e^{-πω/2}
NARROW = 1e-3  # deviation of scores below which tilts by all ζ in use stay close to the law itself
EDGE = 1e-13  # of the domain, which rounding may reach
MARGIN = 0.05  # between a residue and the edge of the domain
WIDTHS = 0.98 * 0.7 ** np.arange(12)  # of a strip, of which the best is taken
SATURATED = 10.0  # -log of what is left of the squares of a coordinate that a tilt saturates


@dataclasses.dataclass(frozen=True)
class Contour:
    """Re z = ``place``, in the middle of a strip of half-width ``width``; ``residue``: the pole next to it is taken out."""

    place: float
    width: float
    residue: bool


@dataclasses.dataclass(frozen=True)
class Nodes:
    """Nodes z = c + iω of a contour at equal distances ``step``, with log E e^{ζs} and the moments of y at ζ = a - z.

    Both have a leading dimension for the queries.
    """

    z: Numbers
    step: float
    exponents: Numbers
    moments: TokenMoments | None  # not needed for φ


@dataclasses.dataclass(frozen=True)
class Lines:
    """A law along some tilts u, shape (query, d): Λ(ζu) - ζΛ(u) and the moments of x - T at ζu, for ζ between ``low`` and ``high``.

    Queries lead the shapes of all that is found.
    """

    mu: Measure
    u: Tensor
    low: float
    high: float
    cgf: Array  # (query,)
    limit: Array  # (query, d)
    cumulants: int  # 2, or 4 where the error of the derivative in U is asked for
    narrow: bool  # whether tilts are so small that means are found as differences
    known: dict[Any, Nodes] = dataclasses.field(default_factory=dict)  # by order, contour and the τ that it serves
    poles: dict[int, tuple[Numbers, TokenMoments]] = dataclasses.field(default_factory=dict)  # by their ζ

    @classmethod
    def of(cls, mu: Measure, u: Tensor, cumulants: int) -> "Lines":
        """Tilts that are all narrow, or none of them."""
        lows, highs = zip(*(mu.tilt_range(tilt) for tilt in u), strict=True)
        lines = cls(mu, u, max(lows), min(highs), mu.cgf(u).numpy(), mu.tilted_mean(u).numpy(), cumulants, narrow=False)
        lines._require_analytic()
        narrow = bool((score_variances(mu, u) < NARROW**2).all()) and lines._bends_little()
        return dataclasses.replace(lines, narrow=narrow)

    def _require_analytic(self) -> None:
        """Refuse a law of one's own whose cgf is not analytic, such as one with abs(u): its slope depends on the direction."""
        step = 1e-4 / (1 + math.sqrt(self.variance(0.5))) * np.array([1.0, 1j])
        above, below = np.split(self.exponents(0.5 + 0.1j + np.concatenate([step, -step])), 2, -1)
        slopes = (above - below) / (2 * step)
        if not (abs(slopes[:, 0] - slopes[:, 1]) < 1e-4 * (1 + abs(slopes[:, 0]))).all():
            given, remedy = f"{self.mu!r}, whose cgf is not analytic at complex tilts", "Write it without abs, max or comparisons."
            raise InvalidArgumentError("mu", given, "laws whose cgf is an analytic function of u", remedy)

    def exponents(self, zeta: Numbers) -> Numbers:
        """log E e^{ζs}, shape (query, ζ)."""
        return self._cumulants(self._tilts(zeta), 0)[0] - zeta * self.cgf[:, None]

    def at(self, zeta: Numbers, cumulants: int = 2) -> tuple[Numbers, TokenMoments]:
        """log E e^{ζs}, and the moments of y under the tilt by ζu, up to the second or the fourth."""
        tilts = self._tilts(zeta)
        value, mean, *higher = self._cumulants(tilts, cumulants)
        mean = self._moved_mean(zeta) if self.narrow else self._less_limit(tilts, mean)
        return value - zeta * self.cgf[:, None], (Dense if higher[0].ndim == 4 else Independent)(mean, *higher)

    def _tilts(self, zeta: Numbers) -> Tensor:
        """ζu, shape (query, ζ, d)."""
        return torch.from_numpy(np.asarray(zeta, dtype=np.complex128)).unsqueeze(-1) * self.u.unsqueeze(1)

    def _less_limit(self, tilts: Tensor, mean: Numbers) -> Numbers:
        if not isinstance(self.mu, ProductMeasure):
            return mean - self.limit[:, None]
        # coordinates second, as the law has them
        moved = self.mu.mean_less_limit(torch.from_numpy(mean).permute(1, 2, 0), tilts.permute(1, 2, 0), self.u.T)
        return np.ascontiguousarray(moved.permute(2, 0, 1).numpy())

    def _bends_little(self) -> bool:
        """Whether ∇²Λ hardly varies between the tilts in use; where large scores are rare it may, however small their variance."""
        ends = [max(self.low, -1.0) * (1 - MARGIN), min(self.high, 3.0) * (1 - MARGIN)]
        zeta = np.array([*ends, 0.0, 1 + 5j, 1 + REACH * 1j])
        fine = self._moved_mean(zeta, points=8)
        return bool((np.abs(self._moved_mean(zeta) - fine).max((1, 2)) <= 1e-11 * np.abs(fine).max((1, 2))).all())

    def _moved_mean(self, zeta: Numbers, points: int = 4) -> Numbers:
        """∇Λ(ζu) - ∇Λ(u) as an integral of ∇²Λ along the line between, which does not cancel for small tilts."""
        u, total = self.u.numpy()[:, None], np.zeros((), dtype=np.complex128)
        for place, weight in zip(*np.polynomial.legendre.leggauss(points), strict=True):
            spread = self._cumulants(self._tilts(1 + (1 + place) / 2 * (zeta - 1)), 2)[2]
            total = total + weight / 2 * (spread * u if spread.ndim == 3 else (spread @ u[..., None])[..., 0])
        return (zeta - 1)[:, None] * total

    def _cumulants(self, tilts: Tensor, order: int) -> list[Numbers]:
        found = self.mu.complex_cumulants(tilts.flatten(0, 1), order)
        return [part.resolve_conj().unflatten(0, tilts.shape[:2]).numpy() for part in found]

    def real(self, zeta: Any) -> Array:
        """log E e^{ζs} at real ζ; infinite at the ends of the domain, to rounding, and beyond."""
        if not isinstance(self.mu, ProductMeasure):
            return np.asarray(self.exponents(np.asarray(zeta)).real)
        places = torch.as_tensor(zeta, dtype=torch.float64)  # real functions cost a tenth of complex ones
        inside = (places > self.low * (1 - EDGE)) & (places < self.high * (1 - EDGE))
        known = torch.where(inside, places, 0.0)
        found = self.mu.cgf(known.unsqueeze(-1) * self.u.unsqueeze(1)) - known * torch.from_numpy(self.cgf)[:, None]
        return torch.where(inside, found, torch.inf).numpy()

    @functools.cached_property
    def fall(self) -> Array:
        """How far log E_ζ y² of each coordinate falls between ζ = 0 and 2, (query, d): by 4u for a sign."""
        if self.high <= 2 + MARGIN:
            return np.zeros(self.u.shape)
        found = self._log_squares(np.array([0.0, 2.0]))
        return np.asarray(found[:, 0] - found[:, 1])

    @functools.cached_property
    def saturated(self) -> NDArray[np.int64] | None:
        """For each query the coordinate whose squares fall most; None where they all fall by little."""
        return np.asarray(self.fall.argmax(-1)) if float(self.fall.max()) > SATURATED else None

    def _log_squares(self, zeta: Array) -> Array:
        """log E_ζ y² of each coordinate at real ζ, shape (query, ζ, d)."""
        moments = self.at(zeta)[1]
        if isinstance(moments, Independent):
            variance = moments.variance
        else:
            assert isinstance(moments, Dense)
            variance = np.diagonal(moments.covariance, axis1=-2, axis2=-1)
        return np.asarray(np.log(np.maximum((variance + moments.mean**2).real, 1e-300)))

    def sizes(self, zeta: Array) -> Array:
        """log of what contours sum at real ζ: E e^{ζs}, and E y² e^{ζs} of the coordinates that saturate, (query or twice, ζ).

        Tokens that are seldom read carry E y² e^{ζs} for small ζ and are nothing at ζ = 2: contours must resolve both.
        """
        found = self.real(zeta)
        if self.saturated is None:
            return found
        inside = np.isfinite(found).all(0)
        squares = self._log_squares(np.where(inside, zeta, 0.5))
        own = np.take_along_axis(squares, self.saturated[:, None, None], -1)[..., 0]
        return np.concatenate([found, found + np.where(inside, own, 0.0)])

    @functools.cached_property
    def own_variance(self) -> float:
        """Variance of the score of the law itself."""
        return self.variance(0.0)

    @functools.cached_property
    def bend(self) -> float:
        """The excess halfway between the law and its tilt."""
        return float(self.excess(0.5, np.array([0.5]))[0])

    def taken(self, order: int) -> tuple[Numbers, TokenMoments]:
        """What is taken out at a pole: log E e^{ζs} and the moments at ζ = 2 or the order."""
        place = max(order, 2)
        if place not in self.poles:
            self.poles[place] = self.at(np.array([float(place)]), self.cumulants)
        return self.poles[place]

    def variance(self, zeta: float) -> float:
        """Variance of the score under the tilt by ζu, the largest over the queries."""
        u = self.u.numpy()[:, None]
        return max(0.0, float((self.at(np.array([zeta]))[1].spread_along(u) * u).sum(-1).real.max()))

    def excess(self, zeta: float, steps: Any) -> Array:
        """How far log E e^{ζs} lies above its tangent, the larger of both sides at a distance: σ²δ²/2 for a Gaussian.

        The largest over the queries, one entry for each distance.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            value, moments = self.at(np.concatenate([[zeta], zeta - steps, zeta + steps]))
            slope = ((moments.mean[:, 0] + self.limit) * self.u.numpy()).sum(-1).real - self.cgf
            below, above = np.split(value.real[:, 1:], 2, -1)
            rise = np.outer(slope, steps)
            return np.asarray((np.maximum(below + rise, above - rise) - value.real[:, :1]).max(0))

    def nodes(self, order: int, contour: Contour, digits: float, low: float, high: float) -> Nodes:
        """Nodes such that e^{-digits} is left for τ from low to high, formula (engine.4).

        A sum of step h leaves e^{-2πD/h} times the terms at a distance D on either side: t^{ζ±D} E e^{(ζ±D)s}, not t^ζ E e^{ζs}.
        """
        key = order, contour, low, high
        if key not in self.known:
            zeta, widths = order - contour.place, contour.width * WIDTHS
            places = np.concatenate([[zeta], zeta + widths, zeta - widths])
            found = self.sizes(places) if order else self.real(places)
            above, below = np.split(found[:, 1:] - found[:, :1], 2, -1)
            # for small t what is meant is the term that was taken out
            slope = (above[:, -1:] - below[:, -1:]) / (2 * widths[-1])
            other = np.maximum(above - widths * slope, below + widths * slope) if contour.residue else below - widths * low
            excess = np.maximum(above + widths * high, other).max(0)
            step = float((2 * math.pi * widths / (digits + np.maximum(excess, 0.0))).max())
            z = contour.place + 1j * step * (np.arange(math.ceil((REACH + 2 * abs(contour.place)) / step)) + 0.5)
            values = self.at(zeta - 1j * z.imag, self.cumulants) if order else (self.exponents(-z), None)
            self.known[key] = Nodes(z, step, *values)
        return self.known[key]


def score_variances(mu: Measure, u: Tensor) -> Array:
    """Variances of the scores of the law itself, (query,)."""
    return np.asarray(((u @ mu.covariance) * u).sum(-1).numpy())
