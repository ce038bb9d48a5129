"""The reduced sampler as one kernel: random numbers, scores and running sums made in registers, nothing written but the sums.

A program reads one item, a range of tokens of one replica: it makes the normals of each counter (``counter``), and keeps in each
lane the largest score and Σ e^{s}, Σ e^{s}ξ, Σ e^{2s} relative to it, for every label. Items end at multiples of ITEM and where a
prompt ends, so that a token has the same number and nearly every sum the same rounding whatever is recorded and wherever it
runs. ``item_sums`` is the kernel, ``plain_item_sums`` the same in PyTorch, number for number to rounding.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from largeprompt.measures import Gaussian, GaussianMixture
from largeprompt.sampling import counter
from largeprompt.sampling.reduced import NO_POWER, Node, Reduction, ScalarStream, Segment, Sums
from largeprompt.sampling.streams import Grid

ITEM = 2**15  # tokens of one program
CELL = 2**30  # tokens that share one residual vector, cut where prompts end
FAN_OUT = 32  # parts that a segment is cut into
NOISE = 2**23  # normals of the residual vectors that are drawn together, at most
LANES = 256  # counters that a program reads at a time
LABELS = 16  # more components than this are left to the plain path


@dataclasses.dataclass(frozen=True)
class WideGrid(Grid):
    """Cells large enough that the host is idle: tokens cost no memory here."""

    @property
    def cells(self) -> int:
        return -(-self.length // CELL)

    @property
    def tokens(self) -> int:
        return CELL

    @property
    def replicas(self) -> int:
        return max(1, min(1024, NOISE // (FAN_OUT * self.extra)))


@dataclasses.dataclass(frozen=True)
class FusedStream(ScalarStream):
    """Scalars by counter, of every replica, for one query; residual noise as in ``ScalarStream``."""

    @property
    def grid(self) -> Grid:
        return WideGrid(self.length, 1, self.reduction.labels * self.reduction.residual.shape[-1])

    def outputs(self, lengths: Sequence[int], block: int, rows: int) -> Iterator[Tensor]:
        """Outputs (rows, o) at each length in turn; all leaves of a cell at once, so that the host has little to do."""
        state: Sums | None = None
        for cell in range(self.grid.cells):
            start, stop = self.grid.span(cell)
            tree = Node.tree(0, stop - start, tuple(length - start for length in lengths), FAN_OUT)
            ends = [start + leaf.stop for leaf in tree.leaves]
            leaves = self._leaves(start, ends, block, rows)
            x = torch.cat(self._noise(tree, self.noise(block, cell, tree.place, rows)[:, 0], leaves.log_power, block, cell), 1)
            recorded = [i + 1 for i, end in enumerate(ends) if end in lengths or end == stop]
            for first, last in itertools.pairwise([0, *recorded]):
                sums = _joined(leaves, slice(first, last), x)
                state = sums if state is None else state.merge(sums)
                if ends[last - 1] in lengths:
                    yield self.reduction.output(state)

    def _leaves(self, start: int, ends: Sequence[int], block: int, rows: int) -> Segment:
        """Sums over each leaf, with shapes (rows, leaves) and (rows, leaves, k)."""
        like, k = self.reduction.scale, self.reduction.labels
        starts, stops, leaf = _items(start, tuple(ends), like.device)
        sums = item_sums if like.is_cuda else plain_item_sums
        parts = sums(self.reduction, starts, stops, self.seed, self.query, block * self.grid.replicas, rows)
        peaks, rest = parts[..., 0], parts[..., 1:]
        peak = peaks.new_full((rows, len(ends)), -math.inf).scatter_reduce(1, leaf.expand(rows, -1), peaks, "amax")
        relative = torch.exp(peaks - peak[:, leaf]).unsqueeze(-1)
        weights = torch.cat((relative.expand(-1, -1, 2 * k), relative.square().expand(-1, -1, k)), -1)
        mass, first, power = rest.new_zeros(rows, len(ends), 3 * k).index_add_(1, leaf, weights * rest).split(k, -1)
        log_power = torch.where(power > 0, power.log() + 2 * peak.unsqueeze(-1), NO_POWER)
        return Segment(peak, mass, first, log_power)

    def _noise(self, node: Node, x: Tensor, log_power: Tensor, block: int, cell: int) -> list[Tensor]:
        """Standard normals of the leaves of a node, in runs (rows, leaves, k, d), from its own x and the leaves' log V."""
        if not node.parts:
            return [x.unsqueeze(1)]
        sizes = [len(part.leaves) for part in node.parts]
        pieces = log_power.split([sum(run) for run in _runs(sizes)], 1)
        known = [
            piece if run[0] == 1 else piece.logsumexp(1, keepdim=True) for piece, run in zip(pieces, _runs(sizes), strict=True)
        ]
        children = self.split(node, x, torch.cat(known, 1), block, cell)
        found, i = [], 0
        for piece, run in zip(pieces, _runs(sizes), strict=True):
            found += (
                [children[:, i : i + len(run)]] if run[0] == 1 else self._noise(node.parts[i], children[:, i], piece, block, cell)
            )
            i += len(run)
        return found


def _runs(sizes: Sequence[int]) -> list[list[int]]:
    """Runs of parts that are leaves, and every other part by itself."""
    runs: list[list[int]] = []
    for size in sizes:
        if size == 1 and runs and runs[-1][0] == 1:
            runs[-1].append(size)
        else:
            runs.append([size])
    return runs


def _joined(leaves: Segment, part: slice, x: Tensor) -> Sums:
    """Sums over consecutive leaves, with their residuals √V x."""
    peaks = leaves.peak[:, part]
    peak = peaks.amax(-1)
    relative = torch.exp(peaks - peak.unsqueeze(-1)).unsqueeze(-1)
    root = torch.exp(leaves.log_power[:, part] / 2 - peak[:, None, None]).unsqueeze(-1)
    mass, first = ((relative * sums[:, part]).sum(1) for sums in (leaves.mass, leaves.first))
    return Sums(peak, mass, first, (root * x[:, part]).sum(1))


def item_bounds(start: int, ends: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where items start and stop: at ``start``, at the multiples of ITEM and at each of ``ends``."""
    inner = np.arange((start // ITEM + 1) * ITEM, ends[-1], ITEM)
    bounds = np.union1d(inner, [start, *ends]).astype(np.int64)
    return bounds[:-1], bounds[1:]


@functools.lru_cache(maxsize=64)
def _items(start: int, ends: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Where items start and stop, and the leaf of each, on a device."""
    starts, stops = item_bounds(start, ends)
    return tuple(torch.from_numpy(part).to(device) for part in (starts, stops, np.searchsorted(ends, stops)))  # type: ignore[return-value]


def plain_item_sums(reduction: Reduction, starts: Tensor, stops: Tensor, seed: int, query: int, replica: int, rows: int) -> Tensor:
    """Peak, Σ e^{s}, Σ e^{s}ξ and Σ e^{2s}, relative to the peak, of each item and replica: shape (rows, items, 1 + 3k)."""
    like = reduction.scale
    per = counter.per_counter(like.dtype)
    replicas = torch.arange(replica, replica + rows, device=like.device).unsqueeze(-1)
    found = []
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        place = torch.arange(start // per, -(-stop // per), device=like.device)
        inside = slice(start - start // per * per, stop - start // per * per)

        def words(stream: int, place: Tensor = place) -> tuple[Tensor, Tensor, Tensor, Tensor]:
            last = torch.full_like(place, 2 * query + stream)
            counters = torch.broadcast_tensors(place & counter.WORD, place >> 32, replicas, last)
            return counter.philox(seed, *counters)

        xi = counter.normals(words(0), like.dtype).flatten(-2)[:, inside]
        label = None
        if reduction.labels > 1:
            uniform = counter.uniforms(words(1), like.dtype).flatten(-2)[:, inside] * reduction.cumulative[-1]
            label = torch.searchsorted(reduction.cumulative, uniform, right=True).clamp_max_(reduction.labels - 1)
        part = reduction.segment(label, xi)
        power = torch.exp(part.log_power - 2 * part.peak.unsqueeze(-1))
        found.append(torch.cat([part.peak.unsqueeze(-1), part.mass, part.first, power], -1))
    return torch.stack(found, 1)


def item_sums(reduction: Reduction, starts: Tensor, stops: Tensor, seed: int, query: int, replica: int, rows: int) -> Tensor:
    """What ``plain_item_sums`` gives, by the kernel."""
    like, labels = reduction.scale, reduction.labels
    found = like.new_empty((rows, len(starts), 1 + 3 * labels))
    padded = 1 if labels == 1 else 1 << (labels - 1).bit_length()
    two = math.log2(math.e)
    kernel()[(len(starts), rows)](
        found,
        starts,
        stops,
        reduction.location * two,
        reduction.scale * two,
        reduction.cumulative / reduction.cumulative[-1],
        seed,
        replica,
        2 * query,
        LABELS=labels,
        PADDED=padded,
        DOUBLE=like.dtype == torch.float64,
        LANES=LANES if labels == 1 else LANES // 2,
    )
    return found


def stream_for(mu: Gaussian | GaussianMixture) -> type[ScalarStream]:
    """How the scalars of a law are best drawn where it is: by the kernel on a GPU that has Triton."""
    labels = 1 if isinstance(mu, Gaussian) else mu.weights.shape[-1]
    known = mu.dtype in (torch.float32, torch.float64) and labels <= LABELS
    return FusedStream if known and mu.device.type == "cuda" and kernel() is not None else ScalarStream


@functools.cache
def kernel() -> Any:
    """Kernel, compiled on use; None where there is no Triton, which comes with PyTorch's builds for GPUs."""
    try:
        from largeprompt.sampling import kernels
    except ImportError:
        return None
    return kernels.item_sums
