"""Nested prompts of Gaussian tokens by drawing one scalar for each token instead of a vector.

A token of component k splits into its scalar ξ and a residual that the scores do not see, formula (law.1) of
docs/mathematics/finite_prompt.md, with a root Γ_k = R_k R_k^T. Given labels and scores the sum of e^{score} r over a segment of new
tokens is one Gaussian vector for each label, with variance Σ_new e^{2 score}: only that vector is drawn.

To make the vectors independent of the lengths that are recorded, they come from a tree of segments: a cell is one segment with a
standard normal x, and a segment of variance V that is cut into m parts of variances V_i = V v_i² passes on

    x_i = w_i (w·y)/(1 + v_1) - y_i,   y = (x, η_2, ..., η_m),   w = v + e_1,   η standard normals of that node,

a reflection that takes e_1 to v, which makes the x_i independent and keeps Σ √V_i x_i = √V x. Cutting further never changes what
is above.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from largeprompt.measures import Gaussian, GaussianMixture
from largeprompt.sampling.streams import Grid, keyed_generator, side_by_side

PIECE = 2**17  # weights that are held at a time: larger ones, on the CPU, would come on fresh pages each time
NO_POWER = -1e30  # stands for log 0 where a segment has no token of a label: finite, so that differences are not NaN


@dataclasses.dataclass(frozen=True, eq=False)
class Node:
    """Segment [start, stop) of a cell, with its place in the tree (1 for the root, then those of its parts)."""

    start: int
    stop: int
    place: int
    parts: tuple[Node, ...] = ()

    @classmethod
    @functools.lru_cache(maxsize=256)
    def tree(cls, start: int, stop: int, cuts: tuple[int, ...], place: int = 1) -> Node:
        """Cut [start, stop) into halves until every cut is the end of a segment."""
        inside = tuple(cut for cut in cuts if start < cut < stop)
        if not inside:
            return cls(start, stop, place)
        middle = (start + stop) // 2
        halves = cls.tree(start, middle, inside, 2 * place), cls.tree(middle, stop, inside, 2 * place + 1)
        return cls(start, stop, place, halves)

    @functools.cached_property
    def leaves(self) -> tuple[Node, ...]:
        """Segments that are not cut, in order."""
        return tuple(leaf for part in self.parts for leaf in part.leaves) if self.parts else (self,)


@dataclasses.dataclass(frozen=True)
class Sums:
    """Sums over tokens relative to e^{peak}, peak (rows,) the largest score; each for every label, shape (rows, k).

    ``mass`` is Σ e^{score}, ``first`` is Σ e^{score} ξ, and ``residual`` (rows, k, d) is √V x: times its root, Σ e^{score} r.
    """

    peak: Tensor
    mass: Tensor
    first: Tensor
    residual: Tensor

    def parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All of them, in order."""
        return self.peak, self.mass, self.first, self.residual

    def at(self, lengths: slice) -> Sums:
        """Those at some of the lengths, the third dimension."""
        return Sums(*(part[:, :, lengths] for part in self.parts()))

    def merge(self, other: Sums) -> Sums:
        """Sums over the union of two disjoint sets of tokens."""
        peak = torch.maximum(self.peak, other.peak)
        p, q = torch.exp(self.peak - peak).unsqueeze(-1), torch.exp(other.peak - peak).unsqueeze(-1)
        residual = p.unsqueeze(-1) * self.residual + q.unsqueeze(-1) * other.residual
        return Sums(peak, p * self.mass + q * other.mass, p * self.first + q * other.first, residual)


@dataclasses.dataclass(frozen=True)
class Segment:
    """Sums over a segment before its residual is drawn; ``log_power`` (rows, k) is log V = log Σ e^{2 score}, whatever the peak."""

    peak: Tensor
    mass: Tensor
    first: Tensor
    log_power: Tensor

    def with_residual(self, x: Tensor) -> Sums:
        """Sums with the residual √V x, for a standard normal x (rows, k, d)."""
        root = torch.exp(self.log_power / 2 - self.peak.unsqueeze(-1))
        return Sums(self.peak, self.mass, self.first, root.unsqueeze(-1) * x)


@dataclasses.dataclass(frozen=True)
class Reduction:
    """Scalar reduction of queries: what of the law the scores see, and what of it the output sees; made when asked for.

    Mixture with means (k, d), roots R_k (k, d, d) and weights (k,), None of one component; tilts u (*queries, d) and V (o, d).
    """

    means: Tensor
    roots: Tensor
    weights: Tensor | None
    u: Tensor
    V: Tensor

    @classmethod
    def of(cls, mu: Gaussian | GaussianMixture, u: Tensor, V: Tensor) -> Reduction:
        """Reduction of a law to its scores with the tilts."""
        if isinstance(mu, Gaussian):
            return cls(mu.mean.unsqueeze(0), mu._root.unsqueeze(0), None, u, V)
        return cls(mu.means, mu._roots, mu.weights, u, V)

    @property
    def labels(self) -> int:
        """Number of components k."""
        return self.means.shape[0]

    @property
    def dim(self) -> int:
        """Dimension d of the tokens."""
        return self.means.shape[1]

    @functools.cached_property
    def cumulative(self) -> Tensor:
        """Cumulative shares of the labels, (k,); in double precision, where small ones are not rounded away."""
        sums = (self.means.new_ones(1) if self.weights is None else self.weights).cumsum(-1, dtype=torch.float64)
        return sums / sums[-1]

    @functools.cached_property
    def location(self) -> Tensor:
        """u·m_k up to a common constant, which the softmax does not see, (*queries, k)."""
        location = self.u @ self.means.mT
        return location - location.amax(-1, keepdim=True)

    @functools.cached_property
    def _along(self) -> Tensor:
        """a_k = R_k^T u, (*queries, k, d)."""
        joined = self.roots.transpose(0, 1).flatten(1)  # (d, k d): one product for all
        along: Tensor = (self.u @ joined).unflatten(-1, (self.labels, self.dim))
        return along

    @functools.cached_property
    def scale(self) -> Tensor:
        """σ_k = |a_k|, (*queries, k)."""
        scale: Tensor = torch.linalg.vector_norm(self._along, dim=-1)
        return scale

    @functools.cached_property
    def _direction(self) -> Tensor:
        """a_k/|a_k|, (*queries, k, d), 0 where scores are constant; of any size: squares of very small numbers are nothing."""
        largest = self._along.abs().amax(-1, keepdim=True)
        relative = self._along / torch.where(largest > 0, largest, 1.0)
        size: Tensor = torch.linalg.vector_norm(relative, dim=-1, keepdim=True).clamp_min(1.0)
        return relative / size

    def draw(self, shape: tuple[int, int], generator: torch.Generator) -> tuple[Tensor | None, Tensor]:
        """Labels (None when there is one only) and scalars ξ, of the given shape."""
        like = self.u
        label = None
        if self.labels > 1:
            uniform = torch.rand(shape, generator=generator, dtype=self.cumulative.dtype, device=like.device)
            label = torch.searchsorted(self.cumulative, uniform, right=True).clamp_max_(self.labels - 1)
        return label, torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)

    def segment(self, label: Tensor | None, xi: Tensor) -> Segment:
        """Sums over the tokens of one segment, labels and scalars (rows, n): weights are made in pieces that stay in the cache."""
        if label is None:
            scores, highest = xi, xi.amax(-1, keepdim=True)  # in units of σ
            peak = highest * self.scale
        else:
            scores = torch.addcmul(self.location[label], self.scale[label], xi)
            peak = highest = scores.amax(-1, keepdim=True)
        rows, tokens = xi.shape
        together = max(1, PIECE // tokens)
        total = xi.new_zeros(3, self.labels, rows)
        for row, token in itertools.product(range(0, rows, together), range(0, tokens, PIECE)):
            some = slice(row, row + together)
            part = some, slice(token, token + PIECE)
            weights = scores[part] - highest[some]
            weights = (weights.mul_(self.scale) if label is None else weights).exp_()
            for k in range(self.labels):
                share = weights if label is None else weights * (label[part] == k)
                sums = share.sum(-1), torch.linalg.vecdot(share, xi[part]), torch.linalg.vecdot(share, share)
                total[:, k, some] += torch.stack(sums)
        mass, first, power = total.mT.unbind()
        log_power = torch.where(power > 0, torch.log(power) + 2 * peak, NO_POWER)
        return Segment(peak.squeeze(-1), mass, first, log_power)

    def output(self, state: Sums) -> Tensor:
        """V Σ_k (mass_k m_k + R_k y_k) / Σ_k mass_k, shape (*queries, ..., o), for sums of that shape.

        Here y_k = x_k + (first_k - a_k·x_k/σ_k) a_k/σ_k with x_k the residual: what the scores see of it is put in its place.
        """
        direction = self._direction
        direction = direction.reshape(*self.u.shape[:-1], *(1,) * (state.residual.dim() - direction.dim()), *direction.shape[-2:])
        seen = state.first - (direction * state.residual).sum(-1)
        y = torch.addcmul(state.residual, direction, seen.unsqueeze(-1))
        total = torch.addmm(state.mass.flatten(0, -2) @ self.means, y.flatten(0, -3).flatten(1), self.roots.mT.flatten(0, 1))
        return (total @ self.V.mT).reshape(*seen.shape[:-1], len(self.V)) / state.mass.sum(-1, keepdim=True)


def reflected(v: Tensor, y: Tensor) -> Tensor:
    """Normals x_i of the parts of a segment, (rows, m, k, d), from y of that shape and the roots v (rows, m, k, 1) of shares."""
    mixed = (y[:, 0] + (v * y).sum(1)) / (1 + v[:, 0])  # w·y/(1 + v_1)
    children = v * mixed.unsqueeze(1) - y
    children[:, 0] += mixed
    return children


@dataclasses.dataclass(frozen=True)
class ScalarStream:
    """Labels, scalars and residual noise of every replica, for one query."""

    reduction: Reduction
    length: int
    seed: int
    query: int

    @property
    def grid(self) -> Grid:
        """Cells that the stream is drawn in."""
        return Grid(self.length, 1, self.reduction.labels * self.reduction.dim)

    def generator(self, block: int, cell: int, place: int) -> torch.Generator:
        """Generator of the scalars of a cell (place 0), of the x of its root (1), or of the η of a node (its first part's)."""
        return keyed_generator(self.seed, self.reduction.u.device, self.query, block, cell, place)

    def noise(self, block: int, cell: int, place: int, rows: int, parts: int = 1) -> Tensor:
        """Standard normals with a place in the tree, shape (rows, parts, k, d)."""
        shape = (self.grid.replicas, parts, self.reduction.labels, self.reduction.dim)
        like, generator = self.reduction.u, self.generator(block, cell, place)
        return torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)[:rows]

    def split(self, node: Node, x: Tensor, log_power: Tensor, block: int, cell: int) -> Tensor:
        """Normals (rows, m, k, d) of the m parts of a node, given its own x (rows, k, d) and their log V (rows, m, k)."""
        v = torch.softmax(log_power, 1).sqrt().unsqueeze(-1)
        fresh = self.noise(block, cell, node.parts[0].place, x.shape[0], len(node.parts) - 1)
        return reflected(v, torch.cat([x.unsqueeze(1), fresh], 1))

    def segments(self, tree: Node, block: int, cell: int, rows: int) -> dict[Node, Segment]:
        """Sums over each leaf of a cell, in order, for the first ``rows`` replicas of a block."""
        label, xi = self.reduction.draw((self.grid.replicas, tree.stop), self.generator(block, cell, 0))
        found = {}
        for leaf in tree.leaves:
            part = slice(0, rows), slice(leaf.start, leaf.stop)
            found[leaf] = self.reduction.segment(None if label is None else label[part], xi[part])
        return found

    def outputs(self, lengths: Sequence[int], block: int, rows: int) -> Iterator[Tensor]:
        """Outputs (rows, o) at each length in turn, for the first ``rows`` replicas of a block."""
        state: Sums | None = None
        for cell in range(self.grid.cells):
            start, stop = self.grid.span(cell)
            tree = Node.tree(0, stop - start, tuple(length - start for length in lengths))
            segments = self.segments(tree, block, cell, rows)
            noise = self._leaf_noise(tree, segments, block, cell, rows)
            for (leaf, segment), x in zip(segments.items(), noise, strict=True):
                sums = segment.with_residual(x)
                state = sums if state is None else state.merge(sums)
                if start + leaf.stop in lengths:
                    yield self.reduction.output(state)

    def _leaf_noise(self, tree: Node, segments: dict[Node, Segment], block: int, cell: int, rows: int) -> Iterator[Tensor]:
        """Standard normal x of each leaf, in order; one at a time, since all together may be large."""

        @functools.cache
        def log_power(node: Node) -> Tensor:
            return torch.stack([log_power(part) for part in node.parts]).logsumexp(0) if node.parts else segments[node].log_power

        def descend(node: Node, x: Tensor) -> Iterator[Tensor]:
            if not node.parts:
                yield x
                return
            children = self.split(node, x, torch.stack([log_power(part) for part in node.parts], 1), block, cell)
            for part, child in zip(node.parts, children.unbind(1), strict=True):
                yield from descend(part, child)

        return descend(tree, self.noise(block, cell, tree.place, rows)[:, 0])


def sample_reduced(
    u: Tensor, V: Tensor, mu: Gaussian | GaussianMixture, lengths: Sequence[int], replicas: int, seed: int
) -> Tensor:
    """Outputs V T_L for tilts u (n, d), shape (n_lengths, replicas, n, o); each query has its own tokens."""
    outputs = u.new_empty((len(lengths), replicas, len(u), V.shape[-2]))
    for query, tilt in enumerate(u):
        stream = ScalarStream(Reduction.of(mu, tilt, V), lengths[-1], seed, query)

        def read(block: int, rows: slice, query: int = query, stream: ScalarStream = stream) -> None:
            for i, output in enumerate(stream.outputs(lengths, block, rows.stop - rows.start)):
                outputs[i, rows, query] = output

        side_by_side(read, stream.grid.blocks(replicas), u.device)
    return outputs
