"""The score u·x of independent heavy-tailed coordinates: its density, and the moments of the coordinates given the score.

A sum s = a + b of independent parts has the density ∫ f_a(x) f_b(s - x) dx, and

    E[a_i | s] f(s) = ∫ f_a E[a_i | x] f_b(s - x) dx,   E[a_i b_j | s] f(s) = ∫ f_a E[a_i | x] f_b E[b_j | s - x] dx:

integrals of positive functions for the density, which keep their digits however far s lies, where a Fourier transform would leave
an absolute error. Functions of s are polynomials in v = asinh(s/width), in which a power law is a line, on panels that are split
until they are resolved.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from largeprompt.errors import InvalidArgumentError
from largeprompt.law.density import ScalarDensity, scalar_density
from largeprompt.law.heavy_tails import power_law_from
from largeprompt.law.quadrature import Array
from largeprompt.measures import LaplaceLaw, ScalarLaw, StudentTLaw

NODES = 20  # of a panel
RESOLVED = 1e-12  # what the last coefficients of a panel may be
STEEPEST = 16.0  # change of the logarithm of a density over a panel
DEEP = 200.0  # -log of densities too small to matter
POINTS = 2**15  # at a time
LONGEST = 2.0  # panel of v
CUT = 17 * math.log(10)  # -log of what an integral may leave out
ROUNDS = 12  # of splitting

PLACES, MASSES = np.polynomial.legendre.leggauss(NODES)
VALUES = np.polynomial.legendre.legvander(PLACES, NODES - 1)
COEFFICIENTS = (VALUES * MASSES[:, None]).T * (np.arange(NODES) + 0.5)[:, None]  # (degree, node)


@dataclasses.dataclass(frozen=True)
class Score:
    """A symmetric random score that is a sum of coordinates, known on x >= 0: log f, and moments of the coordinates given it.

    ``coefficients`` has the shape (1 + moments, degree, panel) and holds Legendre coefficients in v between ``breaks`` of v: of
    log f, E[a_i | x], and where asked for E[a_i a_j | x], i <= j.
    """

    width: float
    breaks: Array
    coefficients: Array
    count: int  # of coordinates
    tail: float  # the density falls like abs(x)^{-tail-1}

    def at(self, x: Array, which: Sequence[int], shared: bool = False) -> Array:
        """Some of the functions at x of any sign, shape (function, ...); ``shared``: the last axis lies within one panel."""
        v = np.arcsinh(np.minimum(np.abs(x), self.ends[-1]) / self.width)
        known = v[..., NODES // 2 : NODES // 2 + 1] if shared else v
        panel = np.clip(np.searchsorted(self.breaks, known, side="right") - 1, 0, len(self.breaks) - 2)
        low, high = self.breaks[panel], self.breaks[panel + 1]
        place = (2 * v - low - high) / (high - low)
        found = np.stack([np.polynomial.legendre.legval(place, self.coefficients[i][:, panel], tensor=False) for i in which])
        for row, i in enumerate(which):
            if i == 0:
                found[row] -= min(self.tail + 1, 1e3) * np.log(np.maximum(np.abs(x) / self.ends[-1], 1.0))
            elif i <= self.count:  # a mean given the score is odd
                found[row] *= np.sign(x)
        return found

    @functools.cached_property
    def ends(self) -> Array:
        """Breaks of x >= 0."""
        return np.asarray(self.width * np.sinh(self.breaks))

    def density(self, x: Array, shared: bool = False) -> Array:
        return np.asarray(np.exp(self.at(x, [0], shared)[0]))

    @functools.cached_property
    def _tails(self) -> Array:
        """P(s > x) at the breaks."""
        half = np.diff(self.ends) / 2
        masses = (self.density(self.ends[:-1, None] + half[:, None] * (1 + PLACES)) @ MASSES) * half
        beyond = self.density(self.ends[-1:]) * self.ends[-1] / self.tail
        return np.asarray(np.cumsum(np.concatenate([beyond, masses[::-1]]))[::-1])

    def upper(self, x: Array) -> Array:
        """P(s > x)."""
        size = np.minimum(np.abs(x), self.ends[-1])
        panel = np.clip(np.searchsorted(self.ends, size, side="right") - 1, 0, len(self.breaks) - 2)
        half = (self.ends[panel + 1] - size)[..., None] / 2
        tail = self._tails[panel + 1] + (self.density(size[..., None] + half * (1 + PLACES)) * half) @ MASSES
        return np.asarray(np.where(x > 0, tail, 1 - tail))

    def as_density(self) -> ScalarDensity:
        return ScalarDensity.symmetric(self.density, self.upper, self.quantile, self.width, self.tail)

    def quantile(self, p: Array) -> Array:
        """About the x > 0 with P(s > x) = p < ½: the end of its panel."""
        return np.asarray(self.ends[np.searchsorted(-self._tails, -p).clip(max=len(self.ends) - 1)])


@dataclasses.dataclass(frozen=True)
class Coordinate:
    """One coordinate times its tilt, u·x with u > 0: like :class:`Score`, by closed forms."""

    law: ScalarDensity
    tilt: float
    ends: Array
    count: int = 1

    def at(self, x: Array, which: Sequence[int], shared: bool = False) -> Array:
        return np.stack([np.log(np.maximum(self.density(x), 1e-300)) if i == 0 else x**i for i in which])

    def density(self, x: Array, shared: bool = False) -> Array:
        return np.asarray(self.law.density(x / self.tilt) / self.tilt)

    @property
    def tail(self) -> float:
        return self.law.moments


def _nodes(breaks: Array, width: float) -> Array:
    """Points x of the panels between breaks of v, shape (panel, node)."""
    return np.asarray(width * np.sinh(breaks[:-1, None] + np.diff(breaks)[:, None] * (1 + PLACES) / 2))


def _resolved(values: Array, width: float, count: int) -> NDArray[np.bool_]:
    """Which panels their polynomials resolve: log f, means and mixed seconds of ``count`` coordinates, (function, panel, node)."""
    last = np.abs(np.einsum("kn,fpn->fkp", COEFFICIENTS[-2:], values)).max(1)
    scale = np.maximum(np.abs(values).max(-1), width)
    scale[0] = np.maximum(1.0, scale[0] / 20)  # rounding of a logarithm
    if len(values) > 1 + count:  # a mixed moment is right to digits of the roots of both squares
        i, j = np.triu_indices(count)
        own = np.sqrt(scale[1 + count :][i == j])
        scale[1 + count :] = own[i] * own[j]
    logs = values[0]
    smooth = (last <= RESOLVED * scale).all(0) & (logs.max(-1) - logs.min(-1) < STEEPEST)
    return np.asarray(smooth | (logs.max(-1) < -DEEP))


def _fit(function: Callable[[Array], Array], width: float, far: float, count: int) -> tuple[Array, Array]:
    """Breaks of v and values of functions of x on panels from 0 to ``far``: shape (function, panel, node)."""
    end = math.asinh(far / width)
    breaks = np.concatenate([[0.0, 0.5, 1.0, 1.5], np.linspace(2.0, end, max(2, math.ceil((end - 2) / LONGEST) + 1))])
    values = function(_nodes(breaks, width))
    for _ in range(ROUNDS):
        good = _resolved(values, width, count)
        if good.all():
            return breaks, values
        old = breaks
        breaks = np.sort(np.concatenate([breaks, (breaks[:-1] + breaks[1:])[~good] / 2]))
        fresh = ~np.isin(breaks[:-1], old[:-1][good])
        joined = np.empty((len(values), len(breaks) - 1, NODES))
        joined[:, ~fresh] = values[:, good]
        joined[:, fresh] = function(_nodes(breaks, width)[fresh])
        values = joined
    raise InvalidArgumentError(
        "z", "a score whose density is not resolved", "tilts of more similar sizes", "Use sample_prompts(...)."
    )


def _sum(one: "Score | Coordinate", other: "Score | Coordinate", width: float, far: float, order: int) -> Score:
    """The law of the sum of two independent scores, with moments up to ``order``."""
    first, second = one.count, other.count
    tail = min(one.tail, other.tail)

    def moments(part: "Score | Coordinate") -> list[int]:
        return list(range(1, 1 + part.count + (part.count * (part.count + 1) // 2 if order == 2 else 0)))

    def half(s: Array, a: "Score | Coordinate", b: "Score | Coordinate") -> tuple[Array, Array, Array]:
        """Points of a and b with sum s and the mass at each, a below s/2: there s - a has all its digits."""
        reach = 40 * width + max(float(s.max()), 8 * width) * math.exp(CUT / (tail + 1))
        kept = [part.ends[: np.searchsorted(part.ends, reach) + 1] for part in (a, b)]
        own, rest = (np.concatenate([-ends[:0:-1], ends]) for ends in kept)
        breaks = np.concatenate([np.broadcast_to(own, (len(s), len(own))), s[:, None] - rest], 1)
        breaks = np.sort(np.minimum(breaks, s[:, None] / 2), 1)
        breaks = breaks[:, : int(np.flatnonzero(np.diff(breaks, axis=1).any(0))[-1]) + 2]
        halves = np.diff(breaks, axis=1)[..., None] / 2
        x = breaks[:, :-1, None] + halves * (1 + PLACES)  # (s, interval, node)
        y = s[:, None, None] - x
        return x, y, a.density(x, True) * b.density(y, True) * halves * MASSES

    def integrate(s: Array) -> Array:
        """log f and moments at some s >= 0, shape (function, s)."""
        below, above = half(s, one, other), half(s, other, one)
        x, y, both = (np.concatenate([below[i], above[j]], 1) for i, j in ((0, 1), (1, 0), (2, 2)))
        whole = both.sum((1, 2))
        both /= np.maximum(whole, 1e-300)[:, None, None]
        a, b = one.at(x, moments(one), True), other.at(y, moments(other), True)
        means = np.concatenate([(both * a[:first]).sum((-2, -1)), (both * b[:second]).sum((-2, -1))])
        log_density = np.log(np.maximum(whole, 1e-300))[None]
        if order == 1:
            return np.concatenate([log_density, means])
        seconds = np.empty((first + second, first + second, len(s)))
        seconds[:first, :first][np.triu_indices(first)] = (both * a[first:]).sum((-2, -1))
        seconds[first:, first:][np.triu_indices(second)] = (both * b[second:]).sum((-2, -1))
        for i in range(first):
            seconds[i, first:] = (both * a[i] * b[:second]).sum((-2, -1))
        return np.concatenate([log_density, means, seconds[np.triu_indices(first + second)]])

    def function(s: Array) -> Array:
        flat, rows = s.ravel(), max(1, POINTS // (2 * NODES * (len(one.ends) + len(other.ends))))
        parts = [integrate(flat[start : start + rows]) for start in range(0, len(flat), rows)]
        return np.concatenate(parts, 1).reshape(-1, *s.shape)

    breaks, values = _fit(function, width, far, first + second)
    return Score(width, breaks, np.einsum("kn,fpn->fkp", COEFFICIENTS, values), first + second, tail)


def can_add(laws: Sequence[ScalarLaw]) -> bool:
    """Whether :func:`score_of` knows the law of a sum of such coordinates: symmetric laws with a density."""
    return all(isinstance(law, StudentTLaw | LaplaceLaw) for law in laws)


def score_of(laws: Sequence[ScalarLaw], tilts: Sequence[float], longest: float, order: int) -> Score:
    """The law of Σ tilt_i x_i, all tilts positive, and moments of tilt_i x_i given it; for prompts up to ``longest`` tokens."""
    known = [scalar_density(law) for law in laws]
    scales = [tilt * density.width for tilt, density in zip(tilts, known, strict=True)]
    reaches = [tilt * float(density.upper_quantile(np.array(1e-18 / longest))) for tilt, density in zip(tilts, known, strict=True)]
    far = max(4 * sum(reaches), 2 * power_law_from(min(density.moments for density in known), longest))
    if not far < 1e150:
        allowed = "tails light enough that the largest of L tokens stays below 10^150"
        raise InvalidArgumentError("mu", f"{laws[0]!r} and L = {longest:g}", allowed, "Ask about shorter prompts.")
    parts: list[Score | Coordinate] = []
    for density, tilt, scale in zip(known, tilts, scales, strict=True):
        single = Coordinate(density, tilt, np.zeros(0))
        breaks, _ = _fit(lambda x, single=single: single.at(x, [0]), scale, far, 1)  # type: ignore[misc]
        parts.append(dataclasses.replace(single, ends=scale * np.sinh(breaks)))
    while len(parts) > 1:  # neighbours in pairs
        merged = [
            _sum(parts[i], parts[i + 1], max(scales[i : i + 2]), far, order) if i + 1 < len(parts) else parts[i]
            for i in range(0, len(parts), 2)
        ]
        scales = [max(scales[i : i + 2]) for i in range(0, len(parts), 2)]
        parts = list(merged)
    assert isinstance(parts[0], Score)
    return parts[0]
