"""The score u·x of independent heavy-tailed coordinates: its density, and the moments of the coordinates given the score.

A sum s = a + b of independent parts has the density ∫ f_a(x) f_b(s - x) dx, and

    E[a_i | s] f(s) = ∫ f_a E[a_i | x] f_b(s - x) dx,   E[a_i b_j | s] f(s) = ∫ f_a E[a_i | x] f_b E[b_j | s - x] dx:

integrals of positive functions for the density, which keep their digits however far s lies, where a Fourier transform would leave
an absolute error. Coordinates with the same law and the same tilt are a group, known by its sum S and Σ a_i²: a group of n takes
log n such steps. Signs have atoms instead of a density, and shift and mix. Functions of s are polynomials in v = asinh(s/width), in
which a power law is a line, on panels that are split until they are resolved.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.law.density import ScalarDensity, scalar_density
from largeprompt.law.heavy_tails import power_law_from
from largeprompt.law.quadrature import Array
from largeprompt.measures import GeneralisedNormalLaw, LaplaceLaw, RademacherLaw, ScalarLaw, StudentTLaw, UniformLaw

NODES = 20  # of a panel
RESOLVED = 1e-12  # what the last coefficients of a panel may be
STEEPEST = 16.0  # change of the logarithm of a density over a panel
DEEP = 200.0  # -log of densities too small to matter
POINTS = 2**15  # at a time
LONGEST = 2.0  # panel of v
MOST_PANELS = 2000
CUT = 17 * math.log(10)  # -log of what an integral may leave out
ROUNDS = 24  # of splitting

PLACES, MASSES = np.polynomial.legendre.leggauss(NODES)
VALUES = np.polynomial.legendre.legvander(PLACES, NODES - 1)
COEFFICIENTS = (VALUES * MASSES[:, None]).T * (np.arange(NODES) + 0.5)[:, None]  # (degree, node)


@dataclasses.dataclass(frozen=True)
class Score:
    """A symmetric random score that is a sum of groups of coordinates, known on x >= 0: log f, and moments of the groups given it.

    ``coefficients`` has the shape (1 + moments, degree, panel) and holds Legendre coefficients in v between ``breaks`` of v: of
    log f, E[S_g | x], and where asked for E[S_g S_h | x], g <= h, and E[Σ a_i² | x] of each group.
    """

    width: float
    breaks: Array
    coefficients: Array
    count: int  # of groups
    tail: float  # the density falls like abs(x)^{-tail-1}
    reach: float  # beyond which nothing is left of lighter tails
    kinks: tuple[float, ...] = ()  # points x >= 0 at which it is not smooth

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
        found = ScalarDensity.symmetric(self.density, self.upper, self.quantile, self.width, self.tail)
        rough = any(self.kinks) or self.ends[1] < self.width / 10
        return dataclasses.replace(found, breaks=(*-self.ends[:0:-1], *self.ends)) if rough else found

    def quantile(self, p: Array) -> Array:
        """About the x > 0 with P(s > x) = p < ½: the end of its panel."""
        return np.asarray(self.ends[np.searchsorted(-self._tails, -p).clip(max=len(self.ends) - 1)])


@dataclasses.dataclass(frozen=True)
class Coordinate:
    """One coordinate times its tilt, u·x with u > 0: like :class:`Score`, by closed forms."""

    law: ScalarDensity
    tilt: float
    ends: Array
    kinks: tuple[float, ...] = ()
    count: int = 1

    def at(self, x: Array, which: Sequence[int], shared: bool = False) -> Array:
        return np.stack([np.log(np.maximum(self.density(x), 1e-300)) if i == 0 else x ** min(i, 2) for i in which])

    @property
    def reach(self) -> float:
        return self.tilt * float(self.law.upper_quantile(np.array(1e-18))) if math.isinf(self.tail) else 0.0

    def density(self, x: Array, shared: bool = False) -> Array:
        return np.asarray(self.law.density(x / self.tilt) / self.tilt)

    @property
    def tail(self) -> float:
        return self.law.moments


@dataclasses.dataclass(frozen=True)
class Signs:
    """A group of n signs times their tilt, u Σ ±1: atoms instead of a density."""

    tilt: float
    number: int
    count: int = 1
    reach: float = 0.0

    @property
    def atoms(self) -> Array:
        return np.asarray(self.tilt * np.arange(-self.number, self.number + 1, 2.0))

    @property
    def masses(self) -> Array:
        return np.array([math.comb(self.number, k) for k in range(self.number + 1)]) / 2.0**self.number

    @property
    def kinks(self) -> tuple[float, ...]:
        return tuple(self.atoms[self.atoms >= 0])

    def at(self, x: Array, which: Sequence[int]) -> Array:
        """Moments of the group at an atom: its sum, its square, and Σ a_i²."""
        known = {1: x, 2: x**2, 3: np.full_like(x, self.number * self.tilt**2)}
        return np.stack([known[i] for i in which])


Part = Score | Coordinate


def _nodes(breaks: Array, width: float) -> Array:
    """Points x of the panels between breaks of v, shape (panel, node)."""
    return np.asarray(width * np.sinh(breaks[:-1, None] + np.diff(breaks)[:, None] * (1 + PLACES) / 2))


def _resolved(values: Array, width: float, count: int) -> NDArray[np.bool_]:
    """Which panels their polynomials resolve: log f, means and second moments of ``count`` groups, (function, panel, node)."""
    last = np.abs(np.einsum("kn,fpn->fkp", COEFFICIENTS[-2:], values)).max(1)
    scale = np.maximum(np.abs(values).max(-1), width)
    scale[0] = np.maximum(1.0, scale[0] / 20)  # rounding of a logarithm
    if len(values) > 1 + count:  # a mixed moment is right to digits of the roots of both squares
        i, j = np.triu_indices(count)
        pairs = slice(1 + count, 1 + count + len(i))
        own = np.sqrt(scale[pairs][i == j])
        scale[pairs] = own[i] * own[j]
    logs = values[0]
    smooth = (last <= RESOLVED * scale).all(0) & (logs.max(-1) - logs.min(-1) < STEEPEST)
    return np.asarray(smooth | (logs.max(-1) < -DEEP))


def _fit(
    function: Callable[[Array], Array], width: float, far: float, count: int, kinks: Sequence[float] = ()
) -> tuple[Array, Array]:
    """Breaks of v and values of functions of x on panels from 0 to ``far``: shape (function, panel, node)."""
    end = math.asinh(far / width)
    even = np.concatenate([[0.0, 0.5, 1.0, 1.5], np.linspace(2.0, end, max(2, math.ceil((end - 2) / LONGEST) + 1))])
    breaks = np.unique(np.concatenate([even, np.arcsinh(np.array([kink for kink in kinks if kink < far]) / width)]))
    values = function(_nodes(breaks, width))
    for _ in range(ROUNDS):
        good = _resolved(values, width, count)
        if good.all():
            return breaks, values
        if len(breaks) > MOST_PANELS:
            break
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


def _numbers(count: int, order: int) -> list[int]:
    """Which functions there are besides log f: means, and where order = 2 products of groups and Σ a_i² of each."""
    return list(range(1, 1 + count + (count * (count + 1) // 2 + count if order == 2 else 0)))


def _points(s: Array, one: Part, other: Part, width: float) -> tuple[Array, Array, Array]:
    """Points x of one and y of the other with sum s, and the mass at each, shape (s, point)."""
    tail = min(one.tail, other.tail)

    def half(a: Part, b: Part) -> tuple[Array, Array, Array]:
        """Those with a below s/2: there s - a has all its digits."""
        reach = 40 * width + a.reach + b.reach + max(float(s.max()), 8 * width) * math.exp(CUT / (tail + 1))
        kept = [part.ends[: np.searchsorted(part.ends, reach) + 1] for part in (a, b)]
        own, rest = (np.concatenate([-ends[:0:-1], ends]) for ends in kept)
        breaks = np.concatenate([np.broadcast_to(own, (len(s), len(own))), s[:, None] - rest], 1)
        breaks = np.sort(np.minimum(breaks, s[:, None] / 2), 1)
        breaks = breaks[:, : int(np.flatnonzero(np.diff(breaks, axis=1).any(0))[-1]) + 2]
        halves = np.diff(breaks, axis=1)[..., None] / 2
        x = breaks[:, :-1, None] + halves * (1 + PLACES)  # (s, interval, node)
        y = s[:, None, None] - x
        return x, y, a.density(x, True) * b.density(y, True) * halves * MASSES

    below, above = half(one, other), half(other, one)
    return tuple(np.concatenate([below[i], above[j]], 1) for i, j in ((0, 1), (1, 0), (2, 2)))  # type: ignore[return-value]


def _sum(one: Part, other: Part | Signs, width: float, far: float, order: int, merge: bool = False) -> Score:
    """The law of the sum of two independent scores, with moments up to ``order``; ``merge``: of two parts of one group."""
    first, second = one.count, other.count
    count = 1 if merge else first + second

    def joined(a: Array, b: Array, total: Callable[[Array], Array], s: Array) -> Array:
        """Moments of the groups of both from moments of each at its points."""
        if merge:
            return np.stack([s, s**2, total(a[2] + b[2])]) if order == 2 else s[None]
        means = [total(each) for each in (*a[:first], *b[:second])]
        if order == 1:
            return np.stack(means)
        seconds = np.empty((count, count, len(s)))
        ends = first * (first + 3) // 2, second * (second + 3) // 2
        seconds[:first, :first][np.triu_indices(first)] = [total(each) for each in a[first : ends[0]]]
        seconds[first:, first:][np.triu_indices(second)] = [total(each) for each in b[second : ends[1]]]
        for i in range(first):
            seconds[i, first:] = [total(a[i] * each) for each in b[:second]]
        squares = [total(each) for each in (*a[ends[0] :], *b[ends[1] :])]
        return np.concatenate([np.stack(means), seconds[np.triu_indices(count)], np.stack(squares)])

    def integrate(s: Array) -> Array:
        """log f and moments at some s >= 0, shape (function, s)."""
        if isinstance(other, Signs):
            y = np.broadcast_to(other.atoms, (len(s), len(other.atoms)))[:, None]  # (s, 1, atom)
            x = s[:, None, None] - y
            logs = one.at(x, [0])[0] + np.log(other.masses)
            top = logs.max((-2, -1), keepdims=True)
            both = np.exp(logs - top)
            log_density = (top.squeeze((-2, -1)) + np.log(both.sum((-2, -1))))[None]
            b = other.at(y, _numbers(1, order))
        else:
            x, y, both = _points(s, one, other, width)
            log_density = np.log(np.maximum(both.sum((-2, -1)), 1e-300))[None]
            b = other.at(y, _numbers(second, order), True)
        both = both / np.maximum(both.sum((-2, -1)), 1e-300)[:, None, None]
        a = one.at(x, _numbers(first, order), not isinstance(other, Signs))
        return np.concatenate([log_density, joined(a, b, lambda values: (both * values).sum((-2, -1)), s)])

    pieces = len(one.ends) + (1 if isinstance(other, Signs) else len(other.ends))

    def function(s: Array) -> Array:
        flat, rows = s.ravel(), max(1, POINTS // (2 * NODES * pieces))
        parts = [integrate(flat[start : start + rows]) for start in range(0, len(flat), rows)]
        return np.concatenate(parts, 1).reshape(-1, *s.shape)

    kinks = tuple(sorted({abs(a + sign * b) for a in one.kinks for b in other.kinks for sign in (1, -1)}))
    if len(kinks) > MOST_PANELS // 4:
        kinks = ()
    breaks, values = _fit(function, width, far, count, kinks)
    tail = one.tail if isinstance(other, Signs) else min(one.tail, other.tail)
    coefficients = np.einsum("kn,fpn->fkp", COEFFICIENTS, values)
    return Score(width, breaks, coefficients, count, tail, one.reach + other.reach, kinks)


def can_add(laws: Sequence[ScalarLaw]) -> bool:
    """Whether :func:`score_of` knows the law of a sum of such coordinates: symmetric densities, and signs beside one."""
    known = StudentTLaw | LaplaceLaw | GeneralisedNormalLaw | UniformLaw
    return all(isinstance(law, known | RademacherLaw) for law in laws) and any(isinstance(law, known) for law in laws)


def groups_of(laws: Sequence[ScalarLaw], tilts: Sequence[float]) -> list[list[int]]:
    """Coordinates of one law and one tilt, in the order in which they are added: smooth densities first, signs at the end."""
    order = (StudentTLaw, GeneralisedNormalLaw, LaplaceLaw, UniformLaw, RademacherLaw)
    found: dict[object, list[int]] = {}
    for index, (law, tilt) in enumerate(zip(laws, tilts, strict=True)):
        alone = index if isinstance(law, UniformLaw) else -1  # sums of these alone are not smooth
        found.setdefault((repr(law), tilt, alone), []).append(index)
    return sorted(found.values(), key=lambda group: order.index(type(laws[group[0]])))


def score_of(laws: Sequence[ScalarLaw], tilts: Sequence[float], longest: float, order: int) -> Score:
    """The law of Σ tilt_i x_i, all tilts positive, and moments of its groups given it; for prompts up to ``longest`` tokens."""
    groups = groups_of(laws, tilts)
    dense = [group for group in groups if not isinstance(laws[group[0]], RademacherLaw)]
    known = [scalar_density(laws[group[0]]) for group in dense]
    steps = [tilts[group[0]] for group in dense]
    heavy = [density for density in known if math.isfinite(density.moments)]
    reaches = [
        len(group) * step * float(density.upper_quantile(np.array(1e-18 / longest)))
        for group, step, density in zip(dense, steps, known, strict=True)
    ]
    signs = [Signs(tilts[group[0]], len(group)) for group in groups if group not in dense]
    ends = sum(reaches) + sum(part.tilt * part.number for part in signs)
    far = max(4 * ends, 2 * power_law_from(min([density.moments for density in heavy], default=math.inf), longest))
    if not far < 1e150:
        allowed = "tails light enough that the largest of L tokens stays below 10^150"
        raise InvalidArgumentError("mu", f"{validation.text(laws[0])} and L = {longest:g}", allowed, "Ask about shorter prompts.")
    parts, scales = [], []
    for group, density, step in zip(dense, known, steps, strict=True):
        scale = step * density.width
        single = _single(density, step, scale, far, isinstance(laws[group[0]], StudentTLaw))
        part, width = _multiple(single, len(group), scale, far, order)
        parts.append(part)
        scales.append(width)
    total, width = parts[0], scales[0]
    for part, scale in zip(parts[1:], scales[1:], strict=True):
        width = max(width, scale)
        total = _sum(total, part, width, far, order)
    for sign in signs:
        total = _sum(total, sign, width, far, order)
    assert isinstance(total, Score)
    return total


def _single(density: ScalarDensity, tilt: float, scale: float, far: float, smooth: bool) -> Coordinate:
    """One coordinate, with the points between which it is smooth."""
    kinks = tuple(tilt * kink for kink in density.kinks if kink >= 0)
    single = Coordinate(density, tilt, np.zeros(0), () if smooth else kinks)
    if density.breaks:
        return dataclasses.replace(single, ends=np.unique([0.0, *(tilt * point for point in density.breaks if point >= 0)]))
    breaks, _ = _fit(lambda x: single.at(x, [0]), scale, far, 1)
    return dataclasses.replace(single, ends=scale * np.sinh(breaks))


def _multiple(single: Part, number: int, width: float, far: float, order: int) -> tuple[Part, float]:
    """The sum of a number of such coordinates, by doubling, and its width."""
    total, power, size = None, single, width
    while True:
        if number & 1:
            total = power if total is None else _sum(total, power, max(width, size), far, order, merge=True)
        number >>= 1
        if not number:
            assert total is not None
            return total, max(width, size)
        size *= math.sqrt(2)
        power = _sum(power, power, size, far, order, merge=True)
