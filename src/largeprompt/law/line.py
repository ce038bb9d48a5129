"""A law along some tilts: its cumulant generating function at complex multiples of them, and contours through those."""

import dataclasses
import functools
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from largeprompt.errors import InvalidArgumentError
from largeprompt.law.tokens import Array, Dense, Independent, Numbers, TokenMoments
from largeprompt.measures import Measure
from largeprompt.measures.base import DOMAIN_EDGE

REACH = 30.0  # of ω: Γ falls like e^{-πω/2}
MARGIN = 0.05  # between a residue and the edge of the domain
WIDTHS = 0.98 * 0.7 ** np.arange(12)  # of a strip, of which the best is taken


@dataclasses.dataclass(frozen=True)
class Contour:
    """Re z = ``place``, in the middle of a strip of half-width ``width``; ``residue``: the pole next to it is taken out."""

    place: float
    width: float
    residue: bool


@dataclasses.dataclass(frozen=True)
class ContourNodes:
    """Nodes z = c + iω of a contour at equal distances ``step``, with log E e^{ζs} and the moments of y at ζ = a - z.

    Both have a leading dimension for the queries.
    """

    z: Numbers
    step: float
    exponents: Numbers
    moments: TokenMoments | None  # not needed for φ


@dataclasses.dataclass(frozen=True)
class Line:
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
    known: dict[Any, ContourNodes] = dataclasses.field(default_factory=dict)  # by order, contour and the τ that it serves
    poles: dict[int, tuple[Numbers, TokenMoments]] = dataclasses.field(default_factory=dict)  # by their ζ

    @classmethod
    def of(cls, mu: Measure, u: Tensor, cumulants: int) -> "Line":
        """The line through some tilts of a law whose cgf is analytic."""
        lows, highs = zip(*(mu._tilt_range(tilt) for tilt in u), strict=True)
        line = cls(mu, u, max(lows), min(highs), mu._cgf(u).numpy(), mu._tilted_mean(u).numpy(), cumulants)
        line._require_analytic()
        return line

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
        return self._cumulants(zeta, 0)[0] - zeta * self.cgf[:, None]

    def at(self, zeta: Numbers, cumulants: int = 2) -> tuple[Numbers, TokenMoments]:
        """log E e^{ζs}, and the moments of y under the tilt by ζu, up to the second or the fourth."""
        value, mean, *higher = self._cumulants(zeta, cumulants)
        kind = Dense if higher[0].ndim == 4 else Independent
        return value - zeta * self.cgf[:, None], kind(mean - self.limit[:, None], *higher)

    def _cumulants(self, zeta: Numbers, order: int) -> list[Numbers]:
        """Λ and its derivatives at ζu, shape (query, ζ, ...)."""
        tilts = torch.from_numpy(np.asarray(zeta, dtype=np.complex128)).unsqueeze(-1) * self.u.unsqueeze(1)
        found = self.mu._complex_cumulants(tilts.flatten(0, 1), order)
        return [part.resolve_conj().unflatten(0, tilts.shape[:2]).numpy() for part in found]

    def real(self, zeta: Any) -> Array:
        """log E e^{ζs} at real ζ; infinite at the ends of the domain, to rounding, and beyond."""
        places = torch.as_tensor(zeta, dtype=torch.float64)  # real functions cost a tenth of complex ones
        inside = (places > self.low * (1 - DOMAIN_EDGE)) & (places < self.high * (1 - DOMAIN_EDGE))
        known = torch.where(inside, places, 0.0)
        found = self.mu._cgf(known.unsqueeze(-1) * self.u.unsqueeze(1)) - known * torch.from_numpy(self.cgf)[:, None]
        return torch.where(inside, found, torch.inf).numpy()

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

    def nodes(self, order: int, contour: Contour, digits: float, low: float, high: float) -> ContourNodes:
        """Nodes such that e^{-digits} is left for τ from low to high, formula (engine.4).

        A sum of step h leaves e^{-2πD/h} times the terms at a distance D on either side: t^{ζ±D} E e^{(ζ±D)s}, not t^ζ E e^{ζs}.
        """
        key = order, contour, low, high
        if key not in self.known:
            zeta, widths = order - contour.place, contour.width * WIDTHS
            found = self.real(np.concatenate([[zeta], zeta + widths, zeta - widths]))
            above, below = np.split(found[:, 1:] - found[:, :1], 2, -1)
            # for small t what is meant is the term that was taken out
            slope = (above[:, -1:] - below[:, -1:]) / (2 * widths[-1])
            other = np.maximum(above - widths * slope, below + widths * slope) if contour.residue else below - widths * low
            excess = np.maximum(above + widths * high, other).max(0)
            step = float((2 * math.pi * widths / (digits + np.maximum(excess, 0.0))).max())
            z = contour.place + 1j * step * (np.arange(math.ceil((REACH + 2 * abs(contour.place)) / step)) + 0.5)
            values = self.at(zeta - 1j * z.imag, self.cumulants) if order else (self.exponents(-z), None)
            self.known[key] = ContourNodes(z, step, *values)
        return self.known[key]
