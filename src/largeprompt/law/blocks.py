"""From block expectations of one token to the law of attention over L of them, at all lengths at once.

With t = e^τ, scores s normalised to E e^s = 1, φ = E e^{-t e^s}, centred tokens y = x - T, G_a[f] = t^a E[f(x) e^{as - t e^s}],

    E T_L - T = L ∫ φ^{L-1} G_1[y] dτ,    E Y = L ∫ φ^{L-1} G_2[1] dτ,
    E (T_L - T)(T_L - T)^T = L ∫ φ^{L-1} G_2[yy^T] dτ + L(L-1) ∫ φ^{L-2} G_1[y] G_1[y]^T dτ,

formula (quad.10) of docs/mathematics/quadrature.md. The trapezoid rule in τ errs by e^{-π²/h}: all is analytic for Re t > 0.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from largeprompt.errors import InvalidArgumentError
from largeprompt.law.quadrature import Range, drawn, power, widen
from largeprompt.law.tokens import Array, Numbers, TokenMoments, is_identity

STEP = 0.2  # of τ
MOST_NODES = 60_000  # of τ
LEAST_DIGITS = 1e-8
DERIVATIVE_ROUNDING = 2e-15
ROUNDING = 1e-14  # of a sum, relative to the sizes of its terms: phases and gamma functions err by more than one ulp
FLAT = 1e-13  # of the squares of tokens: a direction in which nothing but rounding varies
MOST_ENTRIES = 2**26  # of the matrices that the derivative in U needs at every τ: 512 MiB


def grid(below: float, above: float) -> Array:
    """τ from -below to above, multiples of the step."""
    return np.asarray(STEP * np.arange(-math.ceil(below / STEP), math.ceil(above / STEP) + 1))


@dataclasses.dataclass(frozen=True)
class Piece:
    """Part of a block: on the rows ``rows`` of τ, Σ_n kernel_n E_n f over some nodes n."""

    rows: Any  # a slice or the indices
    kernel: Numbers  # (row, node)
    moments: TokenMoments

    def total(self, values: Numbers) -> Array:
        """Σ_n kernel_n values_n, shape (row, m) for values (node, m)."""
        return np.asarray((self.kernel @ values).real)

    def size(self, values: Numbers) -> Array:
        """Σ_n of the sizes of these terms."""
        return np.asarray(np.abs(self.kernel) @ np.abs(values))

    def second(self, weights: Array) -> Array:
        """Σ weights Σ_n kernel_n E_n yy^T, shape (k, d, d) for weights (k, row)."""
        return self.moments.total_second(weights @ self.kernel)


@dataclasses.dataclass(frozen=True)
class Waves(Piece):
    """A piece whose kernel is a product: ``growth`` of the row, a wave of size 1, and ``factor`` of the node."""

    growth: Array  # (row,)
    factor: Numbers  # (node,)

    def total(self, values: Numbers) -> Array:
        return self.growth[:, None] * super().total(self.factor[:, None] * values)

    def size(self, values: Numbers) -> Array:
        return np.outer(self.growth, np.abs(self.factor[:, None] * values).sum(0))

    def second(self, weights: Array) -> Array:
        return self.moments.total_second((weights * self.growth) @ self.kernel * self.factor)


@dataclasses.dataclass(frozen=True)
class Blocks:
    """One token seen through one tilt: log φ on a grid of τ, and the pieces of G_1, G_2, ...

    G_1 is right only for functions f with E f e^s = 0, such as y and yy^T - E yy^T e^s.
    """

    log_phi: Array
    pieces: Callable[[int], Iterable[Piece]]
    noise: Array | None = None  # size of the terms of φ, over φ, where they are not all positive
    digits: float = LEAST_DIGITS  # what rounding may leave of an answer
    smallest_part: float = 0.0  # of the squared error of the whole output that is right to eight digits

    def total(self, order: int, function: Callable[[TokenMoments], Numbers], shape: tuple[int, ...] = ()) -> Array:
        """G_order[f] for f given by its value at the nodes, shape (τ, *shape)."""
        return self._added(order, function, shape, [lambda piece: piece.total])[0]

    def size(self, order: int, function: Callable[[TokenMoments], Numbers], shape: tuple[int, ...] = ()) -> Array:
        """Σ of the sizes of the terms of G_order[f], to which rounding is proportional."""
        return self._added(order, function, shape, [lambda piece: piece.size])[0]

    def total_and_size(self, order: int, function: Callable[[TokenMoments], Numbers], shape: tuple[int, ...]) -> Sequence[Array]:
        """Both, of one look at the nodes; where all terms are positive the size is the total."""
        if self.noise is None:
            return (self.total(order, function, shape),) * 2
        return self._added(order, function, shape, [lambda piece: piece.total, lambda piece: piece.size])

    def _added(
        self,
        order: int,
        function: Callable[[TokenMoments], Numbers],
        shape: tuple[int, ...],
        ways: Sequence[Callable[[Piece], Callable[[Numbers], Array]]],
    ) -> Sequence[Array]:
        results = [np.zeros((len(self.log_phi), math.prod(shape))) for _ in ways]
        for piece in self.pieces(order):
            values = function(piece.moments)
            for result, way in zip(results, ways, strict=True):
                result[piece.rows] += way(piece)(values.reshape(len(values), -1))
        return [result.reshape(-1, *shape) for result in results]

    def second(self, order: int, weights: Array) -> Array:
        """Σ_τ weights G_order[yy^T], shape (row, d, d) for weights (row, τ)."""
        parts = (piece.second(weights[:, piece.rows]) for piece in self.pieces(order))
        return sum(parts, np.zeros(()))


@dataclasses.dataclass(frozen=True)
class OutputMoments:
    """Law of T_L - T, one row for each length.

    ``error(B)`` is E (T_L - T)^T B (T_L - T), shape (length,); ``second()`` the matrix E (T_L - T)(T_L - T)^T, (length, d, d);
    ``jacobian(A, B, G)`` is E tr(A D B D), D the error of the softmax-weighted covariance of tokens, of limit G; ``powers()``, for
    scalar tokens, E (T_L - T)^n for n from 1 to 4, shape (length, 4). Parts of the output whose error is below ``least_part``,
    (length,), for a read-out of norm one, are not right to eight digits.
    """

    bias: Array
    collision: Array
    error: Callable[[Array], Array]
    second: Callable[[], Array]
    jacobian: Callable[[Array, Array, Array], Array]
    powers: Callable[[], Array]
    least_part: Array


def side_by_side(parts: Sequence[OutputMoments]) -> OutputMoments:
    """The lengths of several, one after the other."""

    def rows(known: Callable[[OutputMoments], Array]) -> Array:
        return np.concatenate([known(part) for part in parts])

    return OutputMoments(
        rows(lambda part: part.bias),
        rows(lambda part: part.collision),
        lambda B: rows(lambda part: part.error(B)),
        lambda: rows(lambda part: part.second()),
        lambda A, B, G: rows(lambda part: part.jacobian(A, B, G)),
        lambda: rows(lambda part: part.powers()),
        rows(lambda part: part.least_part),
    )


def output_moments(
    build: Callable[[float, float], Blocks], lengths: Sequence[float], start: Range, further: float, dim: int
) -> OutputMoments:
    """Law of attention over each of several lengths, 1 < L < ∞; ``build`` makes the blocks on τ from -below to above."""
    tokens = np.array(lengths, dtype=np.float64)[:, None]
    one = np.eye(dim)

    def squares(y: TokenMoments) -> Numbers:
        return np.stack([np.ones(len(y.mean)), y.squared(one)], -1)

    def evaluate(ranges: Sequence[Range]) -> tuple[tuple[Blocks, Array, Array, Array, Array, Array], Array]:
        blocks = build(*ranges[0])
        first = blocks.total(1, lambda y: y.mean, (dim,))
        pair, summed = blocks.total_and_size(2, squares, (2,))
        left = power(blocks.log_phi, tokens - 2)  # φ^{L-2}, one exponential for both
        once, twice = tokens * np.exp(blocks.log_phi) * left, tokens * (tokens - 1) * left
        size = np.abs(first).max(-1)
        integrands = [once * size, once * np.abs(pair[:, 0]), once * np.abs(pair[:, 1]) + twice * size**2]
        ends = np.max([(x[:, [0, -1]] / (x.max(1, keepdims=True) + 1e-300)).max(0) for x in integrands], axis=0)
        if blocks.noise is not None:  # what is left at the end is nothing but rounding
            ends = np.where((np.abs(pair) < ROUNDING * summed)[[0, -1]].all(-1), 0.0, ends)
        return (blocks, first, pair, summed, STEP * once, STEP * twice), ends[None]

    blocks, first, pair, summed, once, twice = widen(evaluate, [start], further=further, nodes=MOST_NODES)
    if blocks.noise is not None:
        _require_digits(summed, pair, once, once * tokens * blocks.noise, blocks.digits)

    whole = np.asarray(once @ pair[:, 1] + twice @ (first**2).sum(-1))
    unread: Array = np.zeros(len(tokens))
    if blocks.noise is None:  # what comes after the last row hardly matters for the whole, but may for a part
        unread = (once[:, -1] * pair[-1, 1] + twice[:, -1] * (first[-1] ** 2).sum()) / (STEP * LEAST_DIGITS)

    def error(B: Array) -> Array:
        if is_identity(B):
            return whole
        return np.asarray(once @ blocks.total(2, lambda y: y.squared(B)) + twice @ ((first @ B) * first).sum(-1))

    def second() -> Array:
        rest = np.stack([_outer_sum(row, first) for row in twice])
        return np.asarray(blocks.second(2, once) + rest)

    def jacobian(A: Array, B: Array, limit: Array) -> Array:
        return _jacobian(blocks, first, tokens, A, B, limit)

    def powers() -> Array:
        three, four = (drawn(np.maximum(tokens, k), k, blocks.log_phi, STEP) * (tokens >= k) for k in (3, 4))
        b1, b2 = first[:, 0], pair[:, 1]
        b3 = blocks.total(3, lambda y: y.cubed(one)[:, 0])
        b4 = blocks.total(4, lambda y: y.squared_twice(one, one))
        found = [
            once @ b1,
            once @ b2 + twice @ b1**2,
            (once @ b3 + 3 * twice @ (b2 * b1) + three @ b1**3) / 2,
            (once @ b4 + twice @ (4 * b3 * b1 + 3 * b2**2) + 6 * three @ (b2 * b1**2) + four @ b1**4) / 6,
        ]
        return np.stack(found, -1)

    least = np.maximum(blocks.smallest_part * whole, unread)
    return OutputMoments(once @ first, once @ pair[:, 0], error, second, jacobian, powers, least)


def _outer_sum(weights: Array, vectors: Array) -> Array:
    """Σ weights vectors vectors^T over the rows that matter to some entry, shape (d, d)."""
    size = weights[:, None] * vectors**2
    use = (size > 1e-18 * size.max(0)).any(1)
    return np.asarray((weights[use, None] * vectors[use]).T @ vectors[use])


def _require_digits(size: Array, pair: Array, once: Array, moved: Array, digits: float) -> None:
    """Refuse an answer whose terms cancel so far that fewer than eight digits are left, by the size of what was summed."""
    value = once @ np.abs(pair)
    lost = float((ROUNDING * (once @ size + moved @ np.abs(pair)) / (value + 1e-300)).max())
    if not lost < digits:
        given = f"scores so far apart that rounding leaves {lost:.1g} of the answer"
        remedy = "Scale the query or the tokens, use certificate(...) for a bound, or sample_prompts(...)."
        raise InvalidArgumentError("z", given, "scores whose finite-prompt law is exact to eight digits", remedy)


def _cubed(B: Array, y: TokenMoments) -> Numbers:
    return y.cubed(B)


def _jacobian(blocks: Blocks, g: Array, tokens: Array, A: Array, B: Array, limit: Array) -> Array:
    """E tr(A D B D) with D = Σ w f - SS^T, f = yy^T - Γ, S = Σ w y, Γ = E yy^T e^s: the sum over all ways to share tokens."""
    if not all(piece.moments.complete for piece in blocks.pieces(2)):
        allowed = "laws that know four derivatives of their cgf: those of the library, and your own in up to six dimensions"
        remedy = "Give complex_cumulants(w, order=4), or use jacobian_certificate(...) for a bound."
        raise InvalidArgumentError("jacobian_u_mse", "a law with two derivatives of its cgf", allowed, remedy)
    dim, rows = g.shape[-1], len(g)
    AG, BG, crossed = A @ limit, B @ limit, A @ limit @ B
    crossed = (crossed + crossed.T) / 2

    def matrices(order: int) -> Array:
        return blocks.second(order, np.eye(rows))

    quartic = blocks.total(2, lambda y: y.squared_twice(A, B))
    pairs = blocks.total(2, lambda y: np.stack([np.ones(len(y.mean)), y.squared(A), y.squared(B), y.squared(crossed)], -1), (4,))
    lost, a2, b2, c2 = pairs.T
    f1, y2 = matrices(1), matrices(2)
    y1 = blocks.total(1, lambda y: np.ones(len(y.mean)))  # what G_1 makes of a constant, so that f1 is that of f
    f1_size = np.abs(f1) + np.abs(y1)[:, None, None] * np.abs(limit)
    f1 = f1 - y1[:, None, None] * limit
    fa, fb = (blocks.total(2, functools.partial(_cubed, M), (dim,)) for M in (A, B))
    mean2 = blocks.total(2, lambda y: y.mean, (dim,))
    fa, fb = fa - mean2 @ AG, fb - mean2 @ BG  # G_2[f A y], G_2[f B y]
    three = blocks.total(3, lambda y: y.squared_twice(A, B) - y.squared(crossed))
    a3, b3 = (blocks.total(3, functools.partial(_cubed, M), (dim,)) for M in (A, B))
    four = blocks.total(4, lambda y: y.squared_twice(A, B))
    gA, gB = g @ A, g @ B
    along_a, along_b = (gA * g).sum(-1), (gB * g).sum(-1)
    ff = np.einsum("tij,tji->t", A @ f1, B @ f1)
    fy = np.einsum("tij,tji->t", A @ f1, B @ y2)
    yy = np.einsum("tij,tji->t", A @ y2, B @ y2)
    gfg, gyg = (np.einsum("ti,tij,tj->t", gA, middle, gB) for middle in (f1, y2))
    squares = (quartic - 2 * c2 + lost * np.trace(AG @ BG), ff)
    crossed_terms = (three, (gB * fa).sum(-1) + (gA * fb).sum(-1) + fy, gfg)
    quadruples = (
        four,
        2 * ((a3 * gB).sum(-1) + (b3 * gA).sum(-1)) + a2 * b2 + 2 * yy,
        a2 * along_b + b2 * along_a + 4 * gyg,
        along_a * along_b,
    )
    total, size = np.zeros(len(tokens)), np.zeros(len(tokens))
    for factor, terms in ((1.0, squares), (-2.0 / 2, crossed_terms), (1.0 / 6, quadruples)):
        for k, term in enumerate(terms, start=1):
            weights = np.where(tokens >= k, factor * drawn(np.maximum(tokens, k), k, blocks.log_phi, STEP), 0.0)
            total += weights @ term
            size += np.abs(weights) @ np.abs(term)
    # where yy^T hardly varies, as for signs, f is a small difference
    apart = np.abs(quartic) + 2 * np.abs(c2) + np.abs(lost * np.trace(AG @ BG))
    apart2 = 2 * np.einsum("tij,tji->t", np.abs(A @ f1), np.abs(B) @ f1_size)
    for k, term in enumerate((apart, apart2), start=1):
        size += drawn(tokens, k, blocks.log_phi, STEP) @ term
    rounding = DERIVATIVE_ROUNDING * size
    if blocks.noise is not None:
        once = drawn(tokens, 1, blocks.log_phi, STEP)
        rounding += sum(ROUNDING * (once @ blocks.size(order, lambda y: y.squared_twice(A, B))) for order in (2, 3, 4))
    if not bool((rounding <= LEAST_DIGITS * total).all()):
        given = "weights so concentrated, or tokens whose squares vary so little, that its terms cancel"
        remedy = "Use jacobian_certificate(...) for a bound."
        raise InvalidArgumentError("jacobian_u_mse", given, "errors exact to eight digits", remedy)
    return total
