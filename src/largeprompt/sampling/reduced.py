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
import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from largeprompt.measures import Gaussian, GaussianMixture
from largeprompt.measures.gaussian import square_root
from largeprompt.sampling.streams import Grid, keyed_generator, side_by_side

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
    def tree(cls, start: int, stop: int, cuts: tuple[int, ...], fan_out: int = 2, place: int = 1) -> Node:
        """Cut [start, stop) until every cut is the end of a segment: into halves, or at the powers of a larger ``fan_out``."""
        inside = tuple(cut for cut in cuts if start < cut < stop)
        if not inside:
            return cls(start, stop, place)
        size = -(-(stop - start) // 2)
        bounds = [start, stop - size, stop]
        if fan_out > 2:
            size = fan_out ** math.floor(math.log(stop - start - 1, fan_out)) if stop - start > 2 else 1
            bounds = [start, *range(start + size, stop, size), stop]
        places = itertools.count(fan_out * place)
        parts = (cls.tree(*ends, inside, fan_out, next(places)) for ends in itertools.pairwise(bounds))
        return cls(start, stop, place, tuple(parts))

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
    """Scalar reduction of one query: what of the law the scores see, and what of it the output sees, V applied."""

    cumulative: Tensor  # (k,), cumulative weights of the labels
    location: Tensor  # (k,), u·m_k up to a common constant, which the softmax does not see
    scale: Tensor  # (k,), σ_k
    mean: Tensor  # (k, o), V m_k
    slope: Tensor  # (k, o), V e_k
    residual: Tensor  # (k, o, d), V R_k (I - a_k a_k^T/σ_k²): a root of the residual covariance, whatever the rank of Γ_k

    @classmethod
    def of(cls, weights: Tensor, means: Tensor, roots: Tensor, u: Tensor, V: Tensor) -> Reduction:
        """Reduce a mixture with weights (k,), means (k, d) and roots R_k (k, d, d) for the tilt u (d,) and V (o, d)."""
        along = roots.mT @ u
        scale = torch.linalg.vector_norm(along, dim=-1)
        direction = along / torch.where(scale > 0, scale, 1.0).unsqueeze(-1)  # zero where the scores are constant
        location = means @ u
        slope = (roots @ direction.unsqueeze(-1)).squeeze(-1)
        residual = roots - slope.unsqueeze(-1) * direction.unsqueeze(-2)
        return cls(weights.cumsum(-1), location - location.amax(), scale, means @ V.mT, slope @ V.mT, V @ residual)

    @property
    def labels(self) -> int:
        """Number of components k."""
        return self.scale.shape[0]

    def draw(self, shape: tuple[int, int], generator: torch.Generator) -> tuple[Tensor | None, Tensor]:
        """Labels (None when there is one only) and scalars ξ, of the given shape."""
        like = self.scale
        label = None
        if self.labels > 1:
            uniform = torch.rand(shape, generator=generator, dtype=like.dtype, device=like.device) * self.cumulative[-1]
            label = torch.searchsorted(self.cumulative, uniform, right=True).clamp_max_(self.labels - 1)
        return label, torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)

    def segment(self, label: Tensor | None, xi: Tensor) -> Segment:
        """Sums over the tokens of one segment, labels and scalars (rows, n)."""
        scores = xi * self.scale if label is None else torch.addcmul(self.location[label], self.scale[label], xi)
        peak = scores.amax(-1)
        weights = scores.sub_(peak.unsqueeze(-1)).exp_()
        shares = [weights] if label is None else [weights * (label == k) for k in range(self.labels)]
        mass = torch.stack([share.sum(-1) for share in shares], -1)
        first = torch.stack([(share.unsqueeze(-2) @ xi.unsqueeze(-1)).flatten() for share in shares], -1)
        norm = torch.stack([torch.linalg.vector_norm(share, dim=-1) for share in shares], -1)
        log_power = torch.where(norm > 0, 2 * (torch.log(norm) + peak.unsqueeze(-1)), NO_POWER)
        return Segment(peak, mass, first, log_power)

    def output(self, state: Sums) -> Tensor:
        """V T_L = Σ_k (mass_k V m_k + first_k V e_k + V R_k (...) residual_k) / Σ_k mass_k, shape (rows, o)."""
        total = state.mass @ self.mean + state.first @ self.slope + torch.einsum("rkd,kod->ro", state.residual, self.residual)
        return total / state.mass.sum(-1, keepdim=True)


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
        return Grid(self.length, 1, self.reduction.labels * self.reduction.residual.shape[-1])

    def generator(self, block: int, cell: int, place: int) -> torch.Generator:
        """Generator of the scalars of a cell (place 0), of the x of its root (1), or of the η of a node (its first part's)."""
        return keyed_generator(self.seed, self.reduction.scale.device, self.query, block, cell, place)

    def noise(self, block: int, cell: int, place: int, rows: int, parts: int = 1) -> Tensor:
        """Standard normals with a place in the tree, shape (rows, parts, k, d)."""
        shape = (self.grid.replicas, parts, self.reduction.labels, self.reduction.residual.shape[-1])
        like, generator = self.reduction.residual, self.generator(block, cell, place)
        return torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)[:rows]

    def split(self, node: Node, x: Tensor, log_power: Tensor, block: int, cell: int) -> Tensor:
        """Normals (rows, m, k, d) of the m parts of a node, given its own x (rows, k, d) and their log V (rows, m, k)."""
        v = torch.softmax(log_power, 1).sqrt().unsqueeze(-1)
        fresh = self.noise(block, cell, node.parts[0].place, x.shape[0], len(node.parts) - 1)
        y = torch.cat([x.unsqueeze(1), fresh], 1)
        mixed = (x + (v * y).sum(1)) / (1 + v[:, 0])  # w·y/(1 + v_1)
        children = v * mixed.unsqueeze(1) - y
        children[:, 0] += mixed
        return children

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
    u: Tensor,
    V: Tensor,
    mu: Gaussian | GaussianMixture,
    lengths: Sequence[int],
    replicas: int,
    seed: int,
    streams: type[ScalarStream] = ScalarStream,
) -> Tensor:
    """Outputs V T_L for tilts u ``(*queries, d)``, shape ``(n_lengths, replicas, *queries, o)``; each query has its own tokens."""
    if isinstance(mu, Gaussian):
        weights, means, covariances = mu.mean.new_ones(1), mu.mean.unsqueeze(0), mu.covariance.unsqueeze(0)
    else:
        weights, means, covariances = mu.weights, mu.means, mu.covariances
    roots = square_root(covariances)
    tilts = u.reshape(math.prod(u.shape[:-1]), u.shape[-1])
    outputs = u.new_empty((len(lengths), replicas, tilts.shape[0], V.shape[-2]))
    for query, tilt in enumerate(tilts):
        stream = streams(Reduction.of(weights, means, roots, tilt, V), lengths[-1], seed, query)

        def read(block: int, rows: slice, query: int = query, stream: ScalarStream = stream) -> None:
            for i, output in enumerate(stream.outputs(lengths, block, rows.stop - rows.start)):
                outputs[i, rows, query] = output

        side_by_side(read, stream.grid.blocks(replicas), u.device)
    return outputs.reshape(len(lengths), replicas, *u.shape[:-1], V.shape[-2])
