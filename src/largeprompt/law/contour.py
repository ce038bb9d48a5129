"""Block expectations of any law from its cumulant generating function at complex multiples of the tilt.

As e^{-x} = (1/2πi) ∫ Γ(z) x^{-z} dz over Re z = c > 0, and with scores s normalised to E e^s = 1,

    t^a E[f(x) e^{as - t e^s}] = (1/2π) ∫ Γ(z) t^{a-z} E[f(x) e^{(a-z)s}] dω,   z = c + iω,   t = e^τ,

where E e^{ζs} = e^{Λ(ζu) - ζΛ(u)}, and the law tilted by ζu has mean ∇Λ(ζu) and covariance ∇²Λ(ζu): formulas (engine.1) to
(engine.6) of docs/mathematics/engine.md. A contour may pass a pole of Γ at z = -n once its residue (-t)^n/n! E[f e^{(a+n)s}] is
taken out. For each τ the contour that rounds least is taken; midpoint sums over ω converge geometrically in a strip without
singularities.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import loggamma
from torch import Tensor

from largeprompt.errors import InvalidArgumentError
from largeprompt.law.blocks import STEP, Blocks, OutputMoments, Piece, Waves, grid, output_moments
from largeprompt.law.quadrature import NOTHING, log_survival
from largeprompt.law.tokens import Array, Dense, Independent, Numbers, TokenMoments
from largeprompt.measures import Measure
from largeprompt.measures.scalar.product import ProductMeasure

DIGITS = 40.0  # -log of what a sum over ω may leave out
REACH = 30.0  # of ω: Γ falls like e^{-πω/2}
NARROW = 1e-3  # deviation of scores below which tilts by all ζ in use stay close to the law itself
EDGE = 1e-13  # of the domain, which rounding may reach
MARGIN = 0.05  # between a residue and the edge of the domain
NARROWEST = 0.04  # half-width of a strip worth summing in
WIDEST = 3.0
WIDTHS = 0.98 * 0.7 ** np.arange(12)  # of a strip, of which the best is taken
MOST_CONTOURS = 400
FINE = 16  # neighbouring τ that share an exponential


@dataclasses.dataclass(frozen=True)
class Contour:
    """Re z = ``place``, in the middle of a strip of half-width ``width``; ``residue``: the pole next to it is taken out."""

    place: float
    width: float
    residue: bool


@dataclasses.dataclass(frozen=True)
class Nodes:
    """Nodes z = c + iω of a contour at equal distances ``step``, with log E e^{ζs} and the moments of y at ζ = a - z."""

    z: Numbers
    step: float
    exponents: Numbers
    moments: TokenMoments | None  # not needed for φ


@dataclasses.dataclass(frozen=True)
class Sum:
    """The nodes of a contour that matter, for the rows of τ that use it: t^{a-z} = t^{a-c} e^{-iωτ}, and log Γ(z) dω/π."""

    rows: NDArray[np.int64]
    contour: Contour
    nodes: Nodes
    growth: Array  # t^{a-c}, (row,)
    waves: Numbers  # e^{-iωτ}, (row, node)
    log_gamma: Numbers

    def total(self, coefficients: Numbers) -> Array:
        """Real part of Σ t^{a-z} coefficients, shape (row,)."""
        return np.asarray(self.growth * (self.waves @ coefficients).real)


@dataclasses.dataclass(frozen=True)
class Line:
    """A law along one tilt u: Λ(ζu) - ζΛ(u) and the moments of x - T at ζu, for the ζ between ``low`` and ``high``."""

    mu: Measure
    u: Tensor
    low: float
    high: float
    cgf: float
    limit: Array
    cumulants: int  # 2, or 4 where the error of the derivative in U is asked for
    narrow: bool  # whether the tilt is so small that means are found as differences
    known: dict[Any, Nodes] = dataclasses.field(default_factory=dict)  # by order, contour and the τ that it serves
    poles: dict[int, tuple[Numbers, TokenMoments]] = dataclasses.field(default_factory=dict)  # by their ζ

    @classmethod
    def of(cls, mu: Measure, u: Tensor, cumulants: int) -> "Line":
        narrow = float(u @ mu.covariance @ u) < NARROW**2
        line = cls(mu, u, *mu.tilt_range(u), float(mu.cgf(u)), mu.tilted_mean(u).numpy(), cumulants, narrow)
        line._require_analytic()
        return line

    def _require_analytic(self) -> None:
        """Refuse a law of one's own whose cgf is not analytic, such as one with abs(u): its slope depends on the direction."""
        step = 1e-4 / (1 + math.sqrt(self.variance(0.5))) * np.array([1.0, 1j])
        above, below = self.exponents(0.5 + 0.1j + np.concatenate([step, -step])).reshape(2, 2)
        slopes = (above - below) / (2 * step)
        if not abs(slopes[0] - slopes[1]) < 1e-4 * (1 + abs(slopes[0])):
            given, remedy = f"{self.mu!r}, whose cgf is not analytic at complex tilts", "Write it without abs, max or comparisons."
            raise InvalidArgumentError("mu", given, "laws whose cgf is an analytic function of u", remedy)

    def exponents(self, zeta: Numbers) -> Numbers:
        """log E e^{ζs}."""
        return self._cumulants(zeta, 0)[0] - zeta * self.cgf

    def at(self, zeta: Numbers, cumulants: int = 2) -> tuple[Numbers, TokenMoments]:
        """log E e^{ζs}, and the moments of y under the tilt by ζu, up to the second or the fourth."""
        value, mean, *higher = self._cumulants(zeta, cumulants)
        mean = self._moved_mean(zeta) if self.narrow else self._less_limit(zeta, mean)
        return value - zeta * self.cgf, (Dense if higher[0].ndim == 3 else Independent)(mean, *higher)

    def _less_limit(self, zeta: Numbers, mean: Numbers) -> Numbers:
        if not isinstance(self.mu, ProductMeasure):
            return mean - self.limit
        tilts = torch.from_numpy(np.asarray(zeta, dtype=np.complex128)).unsqueeze(-1) * self.u
        return self.mu.mean_less_limit(torch.from_numpy(mean), tilts, self.u).numpy()

    def _moved_mean(self, zeta: Numbers) -> Numbers:
        """∇Λ(ζu) - ∇Λ(u) as an integral of ∇²Λ along the line between, which does not cancel for small tilts."""
        u, total = self.u.numpy(), np.zeros((len(zeta), len(self.u)), dtype=np.complex128)
        for place, weight in zip(*np.polynomial.legendre.leggauss(4), strict=True):
            spread = self._cumulants(1 + (1 + place) / 2 * (zeta - 1), 2)[2]
            total += weight / 2 * (spread * u if spread.ndim == 2 else spread @ u)
        return (zeta - 1)[:, None] * total

    def _cumulants(self, zeta: Numbers, order: int) -> list[Numbers]:
        tilts = torch.from_numpy(np.asarray(zeta, dtype=np.complex128)).unsqueeze(-1) * self.u
        return [part.resolve_conj().numpy() for part in self.mu.complex_cumulants(tilts, order)]

    def real(self, zeta: Any) -> Array:
        """log E e^{ζs} at real ζ; infinite at the ends of the domain, to rounding, and beyond."""
        if not isinstance(self.mu, ProductMeasure):
            return np.asarray(self.exponents(np.asarray(zeta)).real)
        places = torch.as_tensor(zeta, dtype=torch.float64)  # real functions cost a tenth of complex ones
        inside = (places > self.low * (1 - EDGE)) & (places < self.high * (1 - EDGE))
        known = torch.where(inside, places, 0.0)
        found = self.mu.cgf(known.unsqueeze(-1) * self.u) - known * self.cgf
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
        """Variance of the score under the tilt by ζu."""
        moments = self.at(np.array([zeta]))[1]
        return max(0.0, float((moments.spread_along(self.u.numpy()[None]) @ self.u.numpy()).real[0]))

    def excess(self, zeta: float, steps: Any) -> Array:
        """How far log E e^{ζs} lies above its tangent, the larger of both sides at a distance: σ²δ²/2 for a Gaussian."""
        with np.errstate(over="ignore", invalid="ignore"):
            value, moments = self.at(np.concatenate([[zeta], zeta - steps, zeta + steps]))
            slope = float(((moments.mean[0] + self.limit) @ self.u.numpy()).real) - self.cgf
            below, above = value.real[1:].reshape(2, -1)
            return np.asarray(np.maximum(below + steps * slope, above - steps * slope) - value.real[0])

    def nodes(self, order: int, contour: Contour, digits: float, low: float, high: float) -> Nodes:
        """Nodes such that e^{-digits} is left for τ from low to high, formula (engine.4).

        A sum of step h leaves e^{-2πD/h} times the terms at a distance D on either side: t^{ζ±D} E e^{(ζ±D)s}, not t^ζ E e^{ζs}.
        """
        key = order, contour, low, high
        if key not in self.known:
            zeta, widths = order - contour.place, contour.width * WIDTHS
            here, *sides = self.real(np.concatenate([[zeta], zeta + widths, zeta - widths]))
            above, below = np.reshape(sides, (2, -1)) - here
            # for small t what is meant is the term that was taken out
            slope = (above[-1] - below[-1]) / (2 * widths[-1])
            other = np.maximum(above - widths * slope, below + widths * slope) if contour.residue else below - widths * low
            excess = np.maximum(above + widths * high, other)
            step = float((2 * math.pi * widths / (digits + np.maximum(excess, 0.0))).max())
            z = contour.place + 1j * step * (np.arange(math.ceil((REACH + 2 * abs(contour.place)) / step)) + 0.5)
            found = self.at(zeta - 1j * z.imag, self.cumulants) if order else (self.exponents(-z), None)
            self.known[key] = Nodes(z, step, *found)
        return self.known[key]


class _Engine:
    """The blocks of one line on one grid of τ, for lengths between two."""

    def __init__(self, line: Line, shortest: float, longest: float, tau: Array) -> None:
        self.line, self.tau = line, tau
        self.digits = DIGITS + math.log(longest)
        self.alive = np.ones(len(tau), dtype=bool)
        self.log_phi, self.noise = self._log_phi()
        self.alive = (shortest - 2) * self.log_phi > -60
        self._known: dict[int, list[Piece]] = {}

    def _contours(self, order: int) -> list[Contour]:
        """Contours for G_order: one for small t, past the first pole where the domain allows, and plain ones to its right."""
        left, right = order - self.line.high, order - self.line.low
        needed = 1 if order < 2 else 0  # φ - 1 and G_1 are of order t for small t, the others of order 1
        residue = order == 0 or self.line.high > max(order, 2) + MARGIN
        edge = max(-needed - 1.0 if residue else -float(order == 1), left)
        width = min(1.0, max(0.0, -needed - edge) + 5 / self.digits, (right - edge) / 2)
        found = [Contour(edge + width, width, residue)]
        top = order + 1.0 if right > order + 2 else (order + right) / 2 if right > order + 0.2 else right - 0.1
        poles = (-1.0, -2.0) if order == 1 else (0.0, -1.0, -2.0)
        for place in [top, *self._places(edge + width, order, right)]:
            free = min(right - place, place - left, WIDEST, *(abs(place - pole) for pole in poles))
            if free > NARROWEST and (place > 0 or order < 2):
                found.append(Contour(place, free, False))
        return found

    def _places(self, start: float, order: int, right: float) -> Iterator[float]:
        """Contours near enough to each other that no sum is larger than its value by much: e^1.1, 1.5/σ apart for a Gaussian."""
        narrow = math.sqrt(self.line.own_variance)
        middles = [0.5] if order < 3 else np.arange(order) + 0.5  # orders three and four reach where cgfs may bend far more
        middles = [middle for middle in middles if middle + 0.5 < max(self.line.high, 1.0 + MARGIN)]
        if self.line.bend < 0.2 and all(float(self.line.excess(middle, np.array([0.5]))[0]) < 0.2 for middle in middles[1:]):
            return
        place, end = start, min(order + 1 + 11 / narrow, right - NARROWEST)
        for _ in range(MOST_CONTOURS):
            if place >= end:
                return
            yield place
            tried = 1.25 * 0.7 ** np.arange(20)
            tried = tried[(order - place - tried > self.line.low) & (order - place + tried < self.line.high)]
            near = tried[self.line.excess(order - place, tried) < 1.1]
            if not len(near):
                return
            place += float(near[0])
        given = f"scores of standard deviation {narrow:.3g}"
        remedy = "Scale the query or the tokens, use certificate(...) for a bound, or sample_prompts(...)."
        raise InvalidArgumentError("z", given, "scores near enough to each other for the exact law of such tokens", remedy)

    def _choice(self, order: int, contours: Sequence[Contour]) -> Array:
        """For each τ, the contour whose terms are smallest."""
        places = np.array([contour.place for contour in contours])
        size = loggamma(places + 0.3j).real + self.line.real(order - places)
        noise = size[:, None] + (order - places)[:, None] * self.tau
        if contours[0].residue:
            taken = np.minimum(self.tau, 0.0) if order == 0 else float(self.line.taken(order)[0].real[0]) + max(order, 2) * self.tau
            noise[0] = np.logaddexp(noise[0], taken - np.exp(np.minimum(self.tau, 300.0)) * (order > 0))
        return np.asarray(noise.argmin(0))

    def sums(self, order: int) -> Iterator[Sum]:
        """The sums of G_order over each contour in use."""
        contours = self._contours(order)
        choice = self._choice(order, contours)
        for index, contour in enumerate(contours):
            rows = np.flatnonzero((choice == index) & self.alive)
            if not len(rows):
                continue
            nodes = self.line.nodes(order, contour, self.digits, float(self.tau[rows[0]]), float(self.tau[rows[-1]]))
            log_gamma: Numbers = loggamma(nodes.z) + math.log(nodes.step / math.pi)
            size = (log_gamma + nodes.exponents).real
            if contour.residue:  # of what is taken out too
                size = np.maximum(size, log_gamma.real + (float(self.line.taken(order)[0].real[0]) if order else 0.0))
            used = slice(int(np.flatnonzero(size > size.max() - self.digits - 4)[-1]) + 1)
            growth, waves = np.exp((order - contour.place) * self.tau[rows]), self._waves(rows, nodes.z[used].imag)
            moments = _first(nodes.moments, used) if nodes.moments is not None else None
            kept = Nodes(nodes.z[used], nodes.step, nodes.exponents[used], moments)
            yield Sum(rows, contour, kept, growth, waves, log_gamma[used])

    def _waves(self, rows: NDArray[np.int64], omega: Array) -> Numbers:
        """e^{-iωτ}, shape (row, node): products of coarse and fine steps, as exponentials are dear."""
        coarse, fine = np.divmod(rows, FINE)
        first, last = coarse[0], coarse[-1] + 1
        steps = np.exp(-1j * np.outer(self.tau[FINE * np.arange(first, last)], omega))
        found = (steps[:, None] * np.exp(-1j * STEP * np.outer(np.arange(FINE), omega))).reshape(-1, len(omega))
        return found[fine[0] :][: len(rows)] if rows[-1] - rows[0] < len(rows) else found[rows - FINE * first]

    def _log_phi(self) -> tuple[Array, Array]:
        """log φ, and the size of what was summed to get it, relative to φ."""
        lost, kept, size = (np.empty(len(self.tau)) for _ in range(3))
        for part in self.sums(0):
            rows, exponents = part.rows, part.nodes.exponents
            if part.contour.residue:  # φ - e^{-t}, without poles at 0 and -1
                t = np.exp(np.minimum(self.tau[rows], 300.0))
                coefficients = np.exp(part.log_gamma) * np.expm1(exponents)
                rest = part.total(coefficients)
                lost[rows], kept[rows] = -np.expm1(-t) - rest, np.exp(-t) + rest
                size[rows] = np.minimum(t, 1.0)
            else:
                coefficients = np.exp(part.log_gamma + exponents)
                value = part.total(coefficients)
                crossed = -1 < part.contour.place < 0  # the residue 1 at 0 is taken off
                lost[rows], kept[rows] = (-value, 1 + value) if crossed else (1 - value, value)
                size[rows] = 0.0 if crossed else np.minimum(1.0, np.abs(value))
            size[rows] += np.exp(-part.contour.place * self.tau[rows]) * np.abs(coefficients).sum()
        kept = np.maximum(kept, 1e-300)
        return np.maximum(log_survival(np.maximum(lost, 0.0), kept), NOTHING), size / np.maximum(kept, 1e-16 * size)

    def pieces(self, order: int) -> Sequence[Piece]:
        """The pieces of G_order."""
        if order not in self._known:
            self._known[order] = list(self._pieces(order))
        return self._known[order]

    def _pieces(self, order: int) -> Iterator[Piece]:
        for part in self.sums(order):
            assert part.nodes.moments is not None
            factor = np.exp(part.log_gamma + part.nodes.exponents)
            yield Waves(part.rows, part.waves, part.nodes.moments, part.growth, factor)
            if part.contour.residue:
                # -t e^{-t} or e^{-t} times the moment at 2u or au has the pole that would be next to the contour
                t = np.exp(np.minimum(self.tau[part.rows], 300.0))
                taken, weight = (-t, -part.nodes.z) if order == 1 else (1.0, 1.0)
                rest = taken * t**order * np.exp(-t) - part.total(np.exp(part.log_gamma) * weight)
                exponent, moment = self.line.taken(order)
                yield Piece(part.rows, (np.exp(exponent.real) * rest)[:, None], moment)


def _first(moments: TokenMoments, used: slice) -> TokenMoments:
    """Moments of the first nodes alone."""
    kept = {f.name: getattr(moments, f.name) for f in dataclasses.fields(moments)}
    return type(moments)(**{name: None if value is None else value[used] for name, value in kept.items()})


def contour_moments(mu: Measure, u: Tensor, lengths: Sequence[float], cumulants: int = 2) -> OutputMoments:
    """Law of attention over several lengths, 1 < L < ∞, of a law that knows its cgf at complex tilts."""
    line = Line.of(mu, u, cumulants)

    def build(below: float, above: float) -> Blocks:
        engine = _Engine(line, min(lengths), max(lengths), grid(below, above))
        return Blocks(engine.log_phi, engine.pieces, engine.noise)

    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused
        return output_moments(build, lengths, _range(line, max(lengths)), 14.0 if line.low < -0.1 else 60.0, mu.dim)


def _range(line: Line, longest: float) -> tuple[float, float]:
    """τ between which everything happens, by t^a E e^{as - t e^s} <= C t^ζ E e^{ζs} for every ζ < a (Chernoff)."""
    up = np.linspace(0.0, min(2.0, line.high), 12)[1:-1] if line.high < 2 else np.linspace(0.0, 2.0, 11)[1:]
    down = np.linspace(0.0, max(-16.0, line.low), 24)[1:-1]
    rising, falling = np.split(line.real(np.concatenate([up, down])), [len(up)])
    below = float(((2 * math.log(longest) + 42 + rising) / up).min())
    above = float(((26 + falling) / -down).min()) + 2 if line.low < -0.1 else 60.0
    return below, max(above, 5.0)
