"""Blocks of any law from its cumulant generating function at complex multiples of the tilt.

As e^{-x} = (1/2πi) ∫ Γ(z) x^{-z} dz over Re z = c > 0, and with scores s normalized to E e^s = 1,

    t^a E[f(x) e^{as - t e^s}] = (1/2π) ∫ Γ(z) t^{a-z} E[f(x) e^{(a-z)s}] dω, z = c + iω, t = e^τ,

where E e^{ζs} = e^{Λ(ζu) - ζΛ(u)}, and the law tilted by ζu has mean ∇Λ(ζu) and covariance ∇²Λ(ζu):
formulas (engine.1) to (engine.6) of docs/mathematics/engine.md. A contour may pass a pole of Γ at
z = -n once its residue (-t)^n/n! E[f e^{(a+n)s}] is taken out. Each τ uses the contour that rounds
least; midpoint sums over ω converge geometrically in a strip without singularities. Queries whose
scores vary alike share contours, nodes and the waves t^{-iω}.
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
from largeprompt.law.blocks import TAU_STEP, Blocks, Piece, Waves, grid, widened
from largeprompt.law.quadrature import SMALLER, log_survival
from largeprompt.law.tokens import Array, Dense, Independent, Numbers, TokenMoments
from largeprompt.measures import Measure
from largeprompt.measures.base import DOMAIN_EDGE

DIGITS = 40.0  # -log of what a sum over ω may leave out
# half-widths: worth summing in, and beyond which Γ grows faster than sums converge
NARROWEST_STRIP, WIDEST_STRIP = 0.04, 3.0
SHARES = 0.98 * 0.7 ** np.arange(12)  # of the width of a strip, of which the best is taken
MARGIN = 0.05  # between a residue and the edge of the domain
STEEPEST = 1.1  # log of how much larger a sum over ω may be than its value
FLAT = 0.2  # log of the same below which one contour serves all τ
MOST_CONTOURS = 400  # seconds of work
MOST_WAVES = 2**24  # complex numbers for one contour: 256 MiB, four times what scores 50 wide need
FINE = 16  # neighboring τ that share an exponential
COMPLEX_STEP = 1e-20  # of derivatives by autograd: it keeps all digits
AT_ONCE = 256  # coordinates of queries that share contours: what stays in the cache


@dataclasses.dataclass(frozen=True)
class Line:
    """A law along tilts u, (query, d): its cgf and moments at ζu, for ζ between two ends."""

    mu: Measure
    u: Tensor
    low: float
    high: float
    cgf: Array  # (query,)
    limit: Array  # (query, d)
    cumulants: int  # 2, or 4 where the error of the derivative in U is asked for

    @classmethod
    def of(cls, mu: Measure, u: Tensor, cumulants: int) -> "Line":
        """The line through some tilts of a law."""
        lows, highs = zip(*(mu._tilt_range(tilt) for tilt in u), strict=True)
        return cls(
            mu, u, max(lows), min(highs), mu._cgf(u).numpy(), mu._tilted_mean(u).numpy(), cumulants
        )

    def exponents(self, zeta: Numbers) -> Numbers:
        """log E e^{ζs}, shape (query, ζ)."""
        return self._cumulants(zeta, 0)[0] - zeta * self.cgf[:, None]

    def at(self, zeta: Numbers, cumulants: int = 2) -> tuple[Numbers, TokenMoments]:
        """log E e^{ζs}, and the moments of y under the tilt by ζu."""
        value, mean, *higher = self._cumulants(zeta, cumulants)
        kind = Dense if higher[0].ndim == 4 else Independent
        return value - zeta * self.cgf[:, None], kind(mean - self.limit[:, None], *higher)

    def _cumulants(self, zeta: Numbers, order: int) -> list[Numbers]:
        """Λ and its derivatives at ζu, shape (query, ζ, ...)."""
        tilts = torch.from_numpy(np.asarray(zeta, dtype=np.complex128)).unsqueeze(
            -1
        ) * self.u.unsqueeze(1)
        found = self.mu._complex_cumulants(tilts.flatten(0, 1), order)
        return [part.resolve_conj().unflatten(0, tilts.shape[:2]).numpy() for part in found]

    def real(self, zeta: Any) -> Array:
        """log E e^{ζs} at real ζ; infinite at the ends of the domain, to rounding, and beyond."""
        # real functions cost a tenth of complex ones
        places = torch.as_tensor(zeta, dtype=torch.float64)
        inside = (places > self.low * (1 - DOMAIN_EDGE)) & (places < self.high * (1 - DOMAIN_EDGE))
        known = torch.where(inside, places, 0.0)
        found = (
            self.mu._cgf(known.unsqueeze(-1) * self.u.unsqueeze(1))
            - known * torch.from_numpy(self.cgf)[:, None]
        )
        return torch.where(inside, found, torch.inf).numpy()

    def excess(self, zeta: float, steps: Any) -> Array:
        """Rise of log E e^{ζs} above its tangent, on the steeper side, for the worst query."""
        value = self.real(np.concatenate([[zeta], zeta - steps, zeta + steps]))
        below, above = np.split(value[:, 1:], 2, -1)
        rise = np.outer(self.slopes(np.array([zeta])), steps)
        return np.asarray((np.maximum(below + rise, above - rise) - value[:, :1]).max(0))

    def slopes(self, zeta: Array) -> Array:
        """Mean of the score under the tilt by ζu, (query, ζ), for real ζ."""
        tilts = torch.from_numpy(zeta).unsqueeze(-1) * self.u.unsqueeze(1)
        means = (self.mu._tilted_mean(tilts) * self.u.unsqueeze(1)).sum(-1)
        return np.asarray(means.numpy() - self.cgf[:, None])

    def require_derivatives(self, zeta: float) -> None:
        """Refuse a law whose derivatives overflow: each must be that of the one before."""
        if self.mu.relative_precision:
            return
        _, *found = self._cumulants(np.array([zeta + 1j * COMPLEX_STEP]), self.cumulants)
        u, dense = self.u.numpy(), found[1].ndim == 4
        slopes = []
        for order, part in enumerate(found, 1):
            part = part[:, 0] if dense else part[:, 0] * u ** (order - 1)
            for _ in range(order if dense else 1):
                part = np.einsum("q...i,qi->q...", part, u)
            slopes.append(part)
        size = self.own_size + np.abs(slopes[0])
        for order in range(2, len(slopes) + 1):
            below, this = slopes[order - 2].imag / COMPLEX_STEP, slopes[order - 1].real
            if not (np.abs(below - this) <= 1e-8 * (np.abs(this) + size**order)).all():
                given = f"a tilt at which the derivatives of the cgf of {self.mu!r} overflow"
                remedy = (
                    "Scale the query, or give the derivatives of the law: complex_cumulants(w, "
                    "order), or derivatives(u, order) for a scalar law."
                )
                raise InvalidArgumentError("z", given, "tilts that torch can differentiate", remedy)

    @functools.cached_property
    def own_size(self) -> Array:
        """Root mean square of the score of the law itself, (query,)."""
        mean, spread = self.mu.mean, self.mu.covariance
        square = ((self.u @ spread) * self.u).sum(-1).clamp_min(0.0) + (self.u @ mean).square()
        return square.sqrt().numpy()

    @functools.cached_property
    def deviation(self) -> float:
        """Standard deviation of the score of the law itself, the largest over the queries."""
        return math.sqrt(max(0.0, float(((self.u @ self.mu.covariance) * self.u).sum(-1).max())))


@dataclasses.dataclass(frozen=True)
class Contour:
    """Re z = ``place`` in a strip of half-width ``width``; ``residue``: its pole is taken out."""

    place: float
    width: float
    residue: bool


@dataclasses.dataclass(frozen=True)
class Sum:
    """The sum over a contour, at the nodes z that matter, for the rows of τ that use it."""

    rows: NDArray[np.int64]
    contour: Contour
    z: Numbers
    log_gamma: Numbers  # log Γ(z) dω/π
    exponents: Numbers  # log E e^{ζs} at ζ = a - z, (query, node)
    moments: TokenMoments | None  # of y there; none for φ
    growth: Array  # t^{a-c}, (row,)
    waves: Numbers  # e^{-iωτ}, (row, node)
    # log E e^{ζs} and the moments of what is taken out, at ζ = 2 or a
    taken: tuple[Array, TokenMoments] | None

    def total(self, coefficients: Numbers) -> Array:
        """Real part of Σ t^{a-z} coefficients, shape (..., row) for coefficients (..., node)."""
        return np.asarray(self.growth * (coefficients @ self.waves.T).real)


class _Sums:
    """The sums over contours of some lines on one grid of τ, for lengths between two."""

    def __init__(self, line: Line, shortest: float, longest: float, tau: Array) -> None:
        self.line, self.tau = line, tau
        self.digits = DIGITS + math.log(longest)
        self.alive = np.ones(len(tau), dtype=bool)
        self.log_phi, self.noise = self._log_phi()
        self.alive = np.asarray(((shortest - 2) * self.log_phi > -self.digits).any(0))
        self._known: dict[int, list[tuple[Piece, ...]]] = {}

    def _contours(self, order: int) -> list[Contour]:
        """Contours for G_order: one for small t, past a pole if it can be, and others."""
        left, right = order - self.line.high, order - self.line.low
        # φ - 1 and G_1 are of order t for small t, the others of order 1
        needed = 1 if order < 2 else 0
        residue = order == 0 or self.line.high > max(order, 2) + MARGIN
        edge = max(-needed - 1.0 if residue else -float(order == 1), left)
        width = min(1.0, max(0.0, -needed - edge) + 5 / self.digits, (right - edge) / 2)
        found = [Contour(edge + width, width, residue)]
        top = (
            order + 1.0
            if right > order + 2
            else (order + right) / 2
            if right > order + 0.2
            else right - 0.1
        )
        poles = (-1.0, -2.0) if order == 1 else (0.0, -1.0, -2.0)
        for place in [top, *self._places(edge + width, order, right)]:
            free = min(
                right - place, place - left, WIDEST_STRIP, *(abs(place - pole) for pole in poles)
            )
            if free > NARROWEST_STRIP and (place > 0 or order < 2):
                found.append(Contour(place, free, False))
        return found

    def _places(self, start: float, order: int, right: float) -> Iterator[float]:
        """Contours so near that no sum is much larger than its value."""
        # orders 3 and 4 reach farther
        line, middles = self.line, np.arange(max(1, order - 1 if order < 3 else order)) + 0.5
        if all(
            float(line.excess(middle, np.array([0.5]))[0]) < FLAT
            for middle in middles
            if middle < max(line.high - 0.5, 0.6)
        ):
            return
        place, end = start, min(order + 1 + 11 / line.deviation, right - NARROWEST_STRIP)
        span = np.linspace(start, end, 32)
        deviations = np.sqrt(np.abs(np.diff(line.slopes(order - span))).max(0) * np.diff(span))
        if not deviations.sum() / 1.5 <= MOST_CONTOURS:
            raise self._too_sharp()
        for _ in range(MOST_CONTOURS):
            if place >= end:
                return
            yield place
            tried = 1.25 * 0.7 ** np.arange(20)
            tried = tried[(order - place - tried > line.low) & (order - place + tried < line.high)]
            near = tried[line.excess(order - place, tried) < STEEPEST]
            if not len(near):
                return
            place += float(near[0])
        raise self._too_sharp()

    def _too_sharp(self) -> InvalidArgumentError:
        return InvalidArgumentError(
            "z",
            f"a tilt along which the cgf of {self.line.mu!r} bends sharply",
            "tilts that contours can follow: smaller ones",
            SMALLER,
        )

    def _choice(self, order: int, contours: Sequence[Contour]) -> Array:
        """For each τ, the contour with the smallest terms, for the worst query."""
        places = np.array([contour.place for contour in contours])
        real = self.line.real
        noise = (loggamma(places + 0.3j).real + real(order - places))[..., None] + (order - places)[
            :, None
        ] * self.tau
        if contours[0].residue:
            pole = max(order, 2)
            taken = (
                np.minimum(self.tau, 0.0)
                if order == 0
                else real(np.array([float(pole)])) + pole * self.tau
            )
            noise[:, 0] = np.logaddexp(
                noise[:, 0], taken - np.exp(np.minimum(self.tau, 300.0)) * (order > 0)
            )
        return np.asarray((noise - noise.min(1, keepdims=True)).max(0).argmin(0))

    def sums(self, order: int) -> Iterator[Sum]:
        """The sums of G_order over each contour in use."""
        contours = self._contours(order)
        choice = self._choice(order, contours)
        for index, contour in enumerate(contours):
            rows = np.flatnonzero((choice == index) & self.alive)
            if len(rows):
                yield self._sum(order, contour, rows)

    def _sum(self, order: int, contour: Contour, rows: NDArray[np.int64]) -> Sum:
        step = self._step(
            order - contour.place, contour, float(self.tau[rows[0]]), float(self.tau[rows[-1]])
        )
        # Γ falls like e^{-πω/2}, by more than e^{-DIGITS}
        count = (0.75 * DIGITS + 2 * abs(contour.place)) / step
        if not count * len(rows) <= MOST_WAVES:
            raise self._too_sharp()
        z = contour.place + 1j * step * (np.arange(math.ceil(count)) + 0.5)
        line, moments = self.line, None
        if order:
            line.require_derivatives(order - contour.place)
            if contour.residue:
                line.require_derivatives(float(max(order, 2)))
            exponents, moments = line.at(order - z, line.cumulants)
        else:
            exponents = line.exponents(-z)
        log_gamma: Numbers = loggamma(z) + math.log(step / math.pi)
        taken = (
            line.at(np.array([float(max(order, 2))]), line.cumulants)
            if order and contour.residue
            else None
        )
        size = (log_gamma + exponents).real
        if contour.residue:  # of what is taken out too
            size = np.maximum(size, log_gamma.real + (taken[0].real if taken else 0.0))
        if np.isnan(size).any():
            raise self._too_sharp()
        used = slice(
            int(np.flatnonzero((size > size.max(-1, keepdims=True) - self.digits - 4).any(0))[-1])
            + 1
        )
        growth, waves = (
            np.exp((order - contour.place) * self.tau[rows]),
            self._waves(rows, np.asarray(z[used].imag)),
        )
        moments = _part(moments, (slice(None), used)) if moments else None
        return Sum(
            rows,
            contour,
            z[used],
            log_gamma[used],
            exponents[:, used],
            moments,
            growth,
            waves,
            taken,
        )

    def _step(self, zeta: float, contour: Contour, low: float, high: float) -> float:
        """Step of ω such that e^{-digits} is left for τ from low to high, formula (engine.4)."""
        widths = contour.width * SHARES
        found = self.line.real(np.concatenate([[zeta], zeta + widths, zeta - widths]))
        above, below = np.split(found[:, 1:] - found[:, :1], 2, -1)
        # for small t what is meant is the term that was taken out
        slope = (above[:, -1:] - below[:, -1:]) / (2 * widths[-1])
        other = (
            np.maximum(above - widths * slope, below + widths * slope)
            if contour.residue
            else below - widths * low
        )
        excess = np.maximum(above + widths * high, other).max(0)
        return float((2 * math.pi * widths / (self.digits + np.maximum(excess, 0.0))).max())

    def _waves(self, rows: NDArray[np.int64], omega: Array) -> Numbers:
        """e^{-iωτ}, (row, node): products of coarse and fine steps, as exponentials are slow."""
        coarse, fine = np.divmod(rows, FINE)
        first, last = coarse[0], coarse[-1] + 1
        steps = np.exp(-1j * np.outer(self.tau[FINE * np.arange(first, last)], omega))
        found = (
            steps[:, None] * np.exp(-1j * TAU_STEP * np.outer(np.arange(FINE), omega))
        ).reshape(-1, len(omega))
        return (
            found[fine[0] :][: len(rows)]
            if rows[-1] - rows[0] < len(rows)
            else found[rows - FINE * first]
        )

    def _log_phi(self) -> tuple[Array, Array]:
        """log φ, and the size of what was summed to get it, relative to φ."""
        lost, kept, size = (np.empty((len(self.line.u), len(self.tau))) for _ in range(3))
        for part in self.sums(0):
            rows, t = part.rows, np.exp(np.minimum(self.tau[part.rows], 300.0))
            # with the residue φ - e^{-t}, without poles at 0 and -1
            coefficients = np.exp(part.log_gamma) * (
                np.expm1(part.exponents) if part.contour.residue else np.exp(part.exponents)
            )
            value = part.total(coefficients)
            if part.contour.residue:
                lost[:, rows], kept[:, rows] = -np.expm1(-t) - value, np.exp(-t) + value
                size[:, rows] = np.minimum(t, 1.0)
            elif -1 < part.contour.place < 0:  # the residue 1 at 0 is taken off
                lost[:, rows], kept[:, rows], size[:, rows] = -value, 1 + value, 0.0
            else:
                lost[:, rows], kept[:, rows], size[:, rows] = (
                    1 - value,
                    value,
                    np.minimum(1.0, np.abs(value)),
                )
            size[:, rows] += part.growth * np.abs(coefficients).sum(-1, keepdims=True)
        kept = np.maximum(kept, 1e-300)
        noise = size / np.maximum(kept, 1e-16 * size)
        return log_survival(np.maximum(lost, 0.0), kept), noise

    def pieces(self, query: int, order: int) -> Sequence[Piece]:
        """The pieces of G_order of one query."""
        if order not in self._known:
            self._known[order] = [*zip(*self._pieces(order), strict=True)]
        return self._known[order][query]

    def _pieces(self, order: int) -> Iterator[list[Piece]]:
        """Each piece, as a list over the queries."""
        queries = range(len(self.line.u))
        for part in self.sums(order):
            assert part.moments is not None
            factor, moments = np.exp(part.log_gamma + part.exponents), part.moments
            yield [
                Waves(part.rows, part.waves, _part(moments, query), part.growth, factor[query])
                for query in queries
            ]
            if part.taken:
                # -t e^{-t} or e^{-t} times the moment at 2u or au has the pole that would be next
                # to the contour
                t = np.exp(np.minimum(self.tau[part.rows], 300.0))
                taken, weight = (-t, -part.z) if order == 1 else (1.0, 1.0)
                rest = taken * t**order * np.exp(-t) - part.total(np.exp(part.log_gamma) * weight)
                kernels, moments = np.exp(part.taken[0].real) * rest, part.taken[1]  # (query, row)
                yield [
                    Piece(part.rows, kernels[query][:, None], _part(moments, query))
                    for query in queries
                ]


def _part(moments: TokenMoments, index: Any) -> TokenMoments:
    """Moments of some queries or nodes alone."""
    kept = {f.name: getattr(moments, f.name) for f in dataclasses.fields(moments)}
    return type(moments)(
        **{name: None if value is None else value[index] for name, value in kept.items()}
    )


def group_by_scale(mu: Measure, u: Tensor) -> list[Tensor]:
    """Which of the tilts, (query, d), may share contours: scores and reaches are alike."""
    if len(u) < 2:
        return [*torch.arange(len(u)).split(1)] if len(u) else []
    deviations = np.sqrt(np.maximum(((u @ mu.covariance) * u).sum(-1).numpy(), 0.0))
    reaches = np.array([mu._tilt_range(tilt) for tilt in u]) * [-1, 1] - [0, 1]
    sizes = np.log2(np.column_stack([np.maximum(deviations, 0.5), np.clip(reaches, 1e-6, 3.0)]))
    _, places = np.unique(np.round(2 * sizes), axis=0, return_inverse=True)
    groups = (
        torch.from_numpy(np.flatnonzero(places == place)) for place in range(places.max() + 1)
    )
    return [part for group in groups for part in group.split(max(1, AT_ONCE // mu.dim))]


def contour_blocks(
    mu: Measure, u: Tensor, lengths: Sequence[float], cumulants: int = 2
) -> list[Blocks]:
    """Blocks for lengths, 1 < L < ∞, and tilts, (query, d), of one group."""
    line = Line.of(mu, u, cumulants)

    @functools.cache
    def sums(below: float, above: float) -> _Sums:
        return _Sums(line, min(lengths), max(lengths), grid(below, above))

    def build(query: int, below: float, above: float) -> Blocks:
        found = sums(below, above)
        pieces = functools.partial(found.pieces, query)
        return Blocks(
            np.full(len(found.tau), TAU_STEP),
            found.log_phi[query],
            pieces,
            mu.dim,
            found.noise[query],
        )

    with np.errstate(all="ignore"):  # what overflows is refused
        start, further = _range(line, max(lengths))
        return [
            widened(functools.partial(build, query), lengths, start, further)
            for query in range(len(u))
        ]


def _range(line: Line, longest: float) -> tuple[tuple[float, float], float]:
    """τ between which everything happens, by t^a E e^{as - t e^s} <= C t^ζ E e^{ζs} for every ζ <
    a, and steps beyond.
    """
    up = (
        np.linspace(0.0, min(2.0, line.high), 12)[1:-1]
        if line.high < 2
        else np.linspace(0.0, 2.0, 11)[1:]
    )
    down = np.linspace(0.0, max(-16.0, line.low), 24)[1:-1]
    rising, falling = np.split(line.real(np.concatenate([up, down])).max(0), [len(up)])
    below = float(((2 * math.log(longest) + 42 + rising) / up).min())
    if line.low > -0.1:  # the lower tail gives no bound
        return (below, 60.0), 60.0
    return (below, max(float(((26 + falling) / -down).min()) + 2, 5.0)), 14.0
