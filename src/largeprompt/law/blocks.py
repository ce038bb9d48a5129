"""From block expectations of one token to the law of attention over L of them, at all lengths at
once.

With t = e^τ, scores s normalized to E e^s = 1, φ = E e^{-t e^s}, centered tokens y = x - T,
G_a[f] = t^a E[f(x) e^{as - t e^s}],

    E T_L - T = L ∫ φ^{L-1} G_1[y] dτ,    E Y = L ∫ φ^{L-1} G_2[1] dτ,
    E (T_L - T)(T_L - T)^T = L ∫ φ^{L-1} G_2[yy^T] dτ + L(L-1) ∫ φ^{L-2} G_1[y] G_1[y]^T dτ,

formula (quad.10) of docs/mathematics/quadrature.md. Three sources give the blocks (nodes, contour,
density); this file turns any of them into moments, and refuses what rounding keeps from the
accuracy contract of docs/design.md.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from largeprompt.errors import InvalidArgumentError
from largeprompt.law.quadrature import (
    SMALLER,
    Range,
    falling_factorial_weight,
    relative_ends,
    widen,
)
from largeprompt.law.tokens import Array, Independent, Numbers, TokenMoments, is_identity

# of τ: the trapezoid rule errs by e^{-π²/TAU_STEP} = 4e-22, as all integrands are analytic for Re
# t > 0
TAU_STEP = 0.2
MOST_ROWS = 60_000  # of τ: seconds of work
CACHED = 2**17  # numbers in the largest array while blocks are read: what stays in the cache
# the accuracy contract: |error| <= RELATIVE · value + FLOOR · E[Y] E‖y‖²
RELATIVE, FLOOR = 1e-8, 1e-13
# of a sum, relative to the sizes of its terms: phases and gamma functions err by more than one ulp
ROUNDING = 1e-14
# of second moments under complex tilts, relative to E‖x‖²: derivatives of a cgf may cancel that far
NODE_ROUNDING = 1e-15


def grid(below: float, above: float) -> Array:
    """τ from -below to above, multiples of the step."""
    return np.asarray(
        TAU_STEP * np.arange(-math.ceil(below / TAU_STEP), math.ceil(above / TAU_STEP) + 1)
    )


@dataclasses.dataclass(frozen=True)
class Piece:
    """Part of a block: on the rows ``rows`` of τ, Σ_n kernel_n E_n f over nodes n."""

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

    def matrices(self) -> Array:
        """Σ_n kernel_n E_n yy^T of each row, shape (row, d, d)."""
        return self.moments.total_second(self.kernel)


@dataclasses.dataclass(frozen=True)
class Waves(Piece):
    """A piece whose kernel is ``growth`` of the row times a wave times ``factor`` of the node."""

    growth: Array  # (row,)
    factor: Numbers  # (node,)

    def total(self, values: Numbers) -> Array:
        return self.growth[:, None] * super().total(self.factor[:, None] * values)

    def size(self, values: Numbers) -> Array:
        return np.outer(self.growth, np.abs(self.factor[:, None] * values).sum(0))

    def second(self, weights: Array) -> Array:
        return self.moments.total_second((weights * self.growth) @ self.kernel * self.factor)

    def matrices(self) -> Array:
        return self.growth[:, None, None] * self.moments.total_second(self.kernel * self.factor)


@dataclasses.dataclass(frozen=True)
class OwnNodes(Piece):
    """A piece each row of which has its own nodes: ``moments`` has them row after row."""

    moments: Independent

    def total(self, values: Numbers) -> Array:
        return np.asarray(
            np.einsum("rn,rnm->rm", self.kernel, values.reshape(*self.kernel.shape, -1))
        )

    def size(self, values: Numbers) -> Array:
        return self.total(np.abs(values))

    def second(self, weights: Array) -> Array:
        return self.moments.total_second(
            (weights[:, :, None] * self.kernel).reshape(len(weights), -1)
        )

    def matrices(self) -> Array:
        mean, variance = (
            part.reshape(*self.kernel.shape, -1)
            for part in (self.moments.mean, self.moments.variance)
        )
        diagonal = np.einsum("rn,rnd->rd", self.kernel, variance)[:, :, None] * np.eye(
            mean.shape[-1]
        )
        return np.asarray(
            np.einsum("rn,rnd,rne->rde", self.kernel, mean, mean, optimize=True) + diagonal
        )


@dataclasses.dataclass(frozen=True)
class Blocks:
    """One token seen through one tilt: log φ on a grid of τ, and the pieces of G_1, G_2, ...

    G_1 is right only for functions f with E f e^s = 0, such as y and yy^T - E yy^T e^s.
    """

    measure: Array  # dτ of each row
    log_phi: Array
    pieces: Callable[[int], Iterable[Piece]]
    dim: int
    noise: Array | None = None  # size of the terms of φ, over φ, where they are not all positive

    def total(
        self, order: int, function: Callable[[TokenMoments], Numbers], shape: tuple[int, ...] = ()
    ) -> Array:
        """G_order[f] for f given by its value at the nodes, shape (τ, *shape)."""
        return self._added(order, function, shape, [lambda piece: piece.total])[0]

    def total_and_size(
        self, order: int, function: Callable[[TokenMoments], Numbers], shape: tuple[int, ...] = ()
    ) -> Sequence[Array]:
        """G_order[f], and the sizes of its terms, to which rounding is proportional."""
        return self._added(
            order, function, shape, [lambda piece: piece.total, lambda piece: piece.size]
        )

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

    def matrices(self, order: int) -> Array:
        """G_order[yy^T], shape (τ, d, d)."""
        found = np.zeros((len(self.log_phi), self.dim, self.dim))
        for piece in self.pieces(order):
            found[piece.rows] += piece.matrices()
        return found

    @functools.cached_property
    def first(self) -> Array:
        """G_1[y], shape (τ, d)."""
        return self.total(1, lambda y: y.mean, (self.dim,))

    @functools.cached_property
    def pair(self) -> Sequence[Array]:
        """G_2 of 1 and of ‖y‖², shape (τ, 2), and the sizes of their terms."""
        one = np.eye(self.dim)

        def squares(y: TokenMoments) -> Numbers:
            return np.stack([np.ones(len(y.mean)), y.squared(one)], -1)

        if self.noise is None:  # all terms are positive
            return (self.total(2, squares, (2,)),) * 2
        return self.total_and_size(2, squares, (2,))


def widened(
    build: Callable[[float, float], Blocks], lengths: Sequence[float], start: Range, further: float
) -> Blocks:
    """Blocks, made by ``build`` on τ from -below to above, with nothing left at the ends."""
    tokens = np.array(lengths, dtype=np.float64)[:, None]

    def evaluate(ranges: Sequence[Range]) -> tuple[Blocks, Array]:
        blocks = build(*ranges[0])
        pair, summed = blocks.pair
        once, twice = (falling_factorial_weight(tokens, k, blocks.log_phi).T for k in (1, 2))
        size, (one, square) = np.abs(blocks.first).max(-1), np.abs(pair.T)
        integrands = [once * part[:, None] for part in (size, one, square)]
        integrands[2] += twice * size[:, None] ** 2
        ends = np.max([relative_ends(part)[0] for part in integrands], axis=0)
        if blocks.noise is not None:  # what is left at the end is nothing but rounding
            ends = np.where((np.abs(pair) < ROUNDING * summed)[[0, -1]].all(-1), 0.0, ends)
        return blocks, ends[None]

    return widen(evaluate, [start], further=further, nodes=MOST_ROWS)


@dataclasses.dataclass(frozen=True)
class OutputMoments:
    """Law of T_L - T from blocks, one row for each length, 1 < L < ∞; ``spread`` is E‖y‖² of a
    token, ``square`` ‖T‖².

    E Y and mean squared errors that rounding keeps from the accuracy contract are refused.
    """

    blocks: Blocks
    lengths: Sequence[float]
    spread: float
    square: float = 0.0

    def __post_init__(self) -> None:
        pair, size = self.blocks.pair
        self._require("effective number of tokens", self.collision, size[:, 0], pair[:, 0])
        if math.isfinite(self.spread):
            self._require("mean squared error", self._whole, size[:, 1], pair[:, 1], self.spread)

    def weights(self, count: int) -> Array:
        """L(L-1)...(L-k+1) φ^{L-k} dτ, shape (length, τ)."""
        tokens = np.array(self.lengths, dtype=np.float64)[:, None]
        return self.blocks.measure * falling_factorial_weight(tokens, count, self.blocks.log_phi)

    @functools.cached_property
    def once(self) -> Array:
        """L φ^{L-1} dτ."""
        return self.weights(1)

    @functools.cached_property
    def twice(self) -> Array:
        """L(L-1) φ^{L-2} dτ."""
        return self.weights(2)

    @functools.cached_property
    def bias(self) -> Array:
        """E T_L - T, shape (length, d)."""
        return np.asarray(self.once @ self.blocks.first)

    @functools.cached_property
    def collision(self) -> Array:
        """E Y, shape (length,)."""
        return np.asarray(self.once @ self.blocks.pair[0][:, 0])

    @functools.cached_property
    def _whole(self) -> Array:
        return np.asarray(
            self.once @ self.blocks.pair[0][:, 1] + self.twice @ (self.blocks.first**2).sum(-1)
        )

    def error(self, B: Array) -> Array:
        """E (T_L - T)^T B (T_L - T) for B = V^T V, shape (length,)."""
        if is_identity(B):
            return np.maximum(self._whole, 0.0)
        blocks = self.blocks
        if blocks.noise is None:
            pair = size = blocks.total(2, lambda y: y.squared(B))
        else:
            pair, size = blocks.total_and_size(2, lambda y: y.squared(B))
        found = self.once @ pair + self.twice @ ((blocks.first @ B) * blocks.first).sum(-1)
        self._require(
            "mean squared error", found, size, pair, self.spread * float(np.linalg.norm(B, 2))
        )
        return np.asarray(np.maximum(found, 0.0))

    def second(self) -> Array:
        """E (T_L - T)(T_L - T)^T, shape (length, d, d)."""
        rest = np.stack([_outer_sum(row, self.blocks.first) for row in self.twice])
        parts = (piece.second(self.once[:, piece.rows]) for piece in self.blocks.pieces(2))
        return np.asarray(sum(parts, np.zeros(())) + rest)

    def _require(
        self, name: str, value: Array, size: Array, pair: Array, spread: float = 0.0
    ) -> None:
        """Compare what rounding may cost with RELATIVE · value + FLOOR · E[Y] · spread.

        ``size`` is that of the terms of ``pair`` at each τ. Relative rounding δ of φ enters L - 1
        times, and costs Lδ of each term.
        """
        lost, noise = ROUNDING * (self.once @ size), self.blocks.noise
        if noise is not None:
            moments = (
                NODE_ROUNDING * spread * (1 + self.square / self.spread) * self.blocks.pair[1][:, 0]
                if spread
                else 0.0 * size
            )
            lost = (
                lost
                + self.once @ moments
                + ROUNDING * np.array(self.lengths) * (self.once @ (noise * np.abs(pair)))
            )
        allowed = RELATIVE * np.abs(value) + FLOOR * np.abs(self.collision) * spread
        if not (lost <= allowed).all():  # of a NaN too
            given = (
                f"scores so far apart that rounding may change the {name} by "
                f"{float((lost / (np.abs(value) + 1e-300)).max()):.1g}"
            )
            wanted = "scores whose finite-prompt law keeps eight digits"
            raise InvalidArgumentError("z", f"{given} of it", wanted, SMALLER)


def _outer_sum(weights: Array, vectors: Array) -> Array:
    """Σ weights vectors vectors^T over the rows that matter to some entry, shape (d, d)."""
    size = weights[:, None] * vectors**2
    use = (size > 1e-18 * size.max(0)).any(1)
    return np.asarray((weights[use, None] * vectors[use]).T @ vectors[use])
