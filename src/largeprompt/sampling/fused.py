"""The reduced sampler as two kernels: random numbers, scores and running sums made in registers, nothing written but the sums.

``segment_sums`` reads one segment of one replica in each program: it makes the normals of each counter (``counter``), and keeps in
each lane the largest score and Σ e^{s}, Σ e^{s}ξ, Σ e^{2s} relative to it, for every label. Segments are the items, ITEM tokens
each, and the parts of the items that a recorded length cuts. ``prefix_sums`` adds them up to each length and draws the residuals:
an item has a standard normal x, which is handed on to its parts and from a part to its tokens as in ``reduced``. All random
numbers have their place in the prompt, so that prompts are the same whatever else is recorded of them and wherever it runs.

``plain_segment_sums`` and ``plain_prefix_sums`` are the same in PyTorch, number for number to rounding.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from largeprompt.measures import Gaussian, GaussianMixture
from largeprompt.sampling import counter
from largeprompt.sampling.reduced import Reduction, Sums, reflected
from largeprompt.sampling.streams import keyed_seed

ITEM = 2**15  # tokens of one program, and of one residual vector
PART = 2**10  # tokens of a part of an item that is cut
CELL = 2**35  # tokens whose sums are held at a time
HELD = 2**27  # sums of segments, and numbers of the residuals, that are held at a time
LAUNCHED = 2**15  # replicas, and queries, of a launch
LANES = 256  # counters that a program reads at a time
GROUPS = 4  # counters of a residual that a program reads
LABELS = 16  # more components than this are left to the plain path
ITEMS, PARTS = 0, 1  # levels of the normals of a residual, by whose they are; tokens come after


@dataclasses.dataclass(frozen=True)
class Cuts:
    """Lengths at which the prompts of a cell are recorded, and the segments that are summed for it.

    Segments are the items, then ITEM/PART parts for each length that ends inside an item. A length reads the first ``whole``
    items, and of the item that it cuts those parts, from segment ``parts`` on (-1 where it cuts none), that it reaches.
    """

    lengths: Tensor
    whole: Tensor
    parts: Tensor
    starts: Tensor
    stops: Tensor

    @classmethod
    @functools.lru_cache(maxsize=8)  # 16 MB each at most
    def of(cls, start: int, lengths: tuple[int, ...], device: torch.device) -> Cuts:
        """Cuts of the cell that begins at ``start`` and ends at the last of the lengths."""
        ends, longest = np.asarray(lengths, dtype=np.int64), lengths[-1]
        items = np.arange(start, longest, ITEM)
        cut = ((ends - start) % ITEM != 0) & (ends != longest)
        inside = (ends[cut] - start) // ITEM * ITEM + start
        starts = np.concatenate([items, (inside[:, None] + np.arange(0, ITEM, PART)).ravel()])
        sizes = np.repeat([ITEM, PART], [len(items), len(starts) - len(items)])
        parts = np.where(cut, len(items) + (np.cumsum(cut) - 1) * (ITEM // PART), -1)
        whole = np.where(ends == longest, len(items), (ends - start) // ITEM)
        arrays = ends, whole, parts, np.minimum(starts, longest), np.minimum(starts + sizes, longest)
        return cls(*(torch.from_numpy(array).to(device) for array in arrays))


@dataclasses.dataclass(frozen=True)
class Places:
    """Which random numbers are read: those of queries and replicas from the given ones on."""

    seed: int
    query: int
    replica: int
    rows: int

    @functools.cached_property
    def residual(self) -> int:
        """Seed of the normals of the residuals."""
        return keyed_seed(self.seed) >> 1

    def replicas(self, device: torch.device) -> Tensor:
        """Numbers of the replicas, (rows, 1)."""
        return torch.arange(self.replica, self.replica + self.rows, device=device).unsqueeze(-1)

    def scalars(self, reduction: Reduction, start: int, stop: int) -> tuple[Tensor | None, Tensor]:
        """Labels (None when there is one only) and scalars ξ of the tokens from start to stop, (rows, tokens)."""
        like = reduction.u
        per = counter.per_counter(like.dtype)
        place = torch.arange(start // per, -(-stop // per), device=like.device)
        inside = slice(start - start // per * per, stop - start // per * per)

        def words(stream: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
            return _words(self.seed, place, self.replicas(like.device), 2 * self.query + stream)

        xi = counter.normals(words(0), like.dtype).flatten(-2)[:, inside]
        if reduction.labels == 1:
            return None, xi
        uniform = counter.uniforms(words(1), like.dtype).flatten(-2)[:, inside]
        return torch.searchsorted(_shares(reduction), uniform, right=True).clamp_max_(reduction.labels - 1), xi

    def normals(self, reduction: Reduction, level: int, index: Tensor) -> Tensor:
        """Normals of the residuals of items, parts or tokens, (rows, n, k, d), by their index in the prompt."""
        like, per = reduction.u, counter.per_counter(reduction.u.dtype)
        groups = -(-reduction.dim // per)
        columns = torch.arange(reduction.labels * groups, device=like.device) + self.query * reduction.labels * groups
        found = _words(self.residual, (4 * index + level)[:, None], self.replicas(like.device)[..., None], columns)
        drawn: Tensor = counter.normals(found, like.dtype).unflatten(2, (reduction.labels, groups)).flatten(3)
        return drawn[..., : reduction.dim]


def _words(seed: int, place: Tensor, replica: Tensor, stream: int | Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    last = stream if isinstance(stream, Tensor) else torch.full_like(place, stream)
    return counter.philox(seed, *torch.broadcast_tensors(place & counter.WORD, place >> 32, replica, last))


def sample_fused(u: Tensor, V: Tensor, mu: Gaussian | GaussianMixture, lengths: Sequence[int], replicas: int, seed: int) -> Tensor:
    """Outputs V T_L for tilts u (n, d), shape (n_lengths, replicas, n, o); each query has its own tokens.

    As many queries, replicas and lengths at a time as memory allows: what is drawn does not depend on that.
    """
    outputs = u.new_empty((len(u), replicas, len(lengths), V.shape[-2]))
    reduction = Reduction.of(mu, u, V)
    labels = reduction.labels
    segments = -(-min(lengths[-1], CELL) // ITEM) + len(lengths) * ITEM // PART
    most = max(1, HELD // ((1 + 3 * labels) * segments + len(lengths) * labels * mu.dim))  # pairs of query and replica
    rows = min(replicas, most, LAUNCHED)
    queries = max(1, min(most // rows, LAUNCHED))
    for query in range(0, len(u), queries):
        some = dataclasses.replace(reduction, u=u[query : query + queries])
        for replica in range(0, replicas, rows):
            places = Places(seed, query, replica, min(rows, replicas - replica))
            rest = outputs[query : query + queries, replica : replica + rows]
            for drawn in _outputs(some, places, lengths):
                rest[:, :, : drawn.shape[2]] = drawn
                rest = rest[:, :, drawn.shape[2] :]
    return outputs.permute(2, 1, 0, 3)


def _outputs(reduction: Reduction, places: Places, lengths: Sequence[int]) -> Iterator[Tensor]:
    """Outputs (queries, rows, n, o) at the n lengths of each cell."""
    state, sums = None, _kernel_sums if reduction.u.is_cuda else _plain_sums
    for start in range(0, lengths[-1], CELL):
        stop = min(start + CELL, lengths[-1])
        inside = tuple(length for length in lengths if start < length < stop)
        found = sums(reduction, Cuts.of(start, (*inside, stop), reduction.u.device), places)
        found = found if state is None else state.merge(found)
        yield reduction.output(found if stop in lengths else found.at(slice(-1)))
        state = found.at(slice(-1, None)) if stop < lengths[-1] else None


def _kernel_sums(reduction: Reduction, cuts: Cuts, places: Places) -> Sums:
    return prefix_sums(reduction, cuts, places, segment_sums(reduction, cuts, places))


def _plain_sums(reduction: Reduction, cuts: Cuts, places: Places) -> Sums:
    found = []
    for query, tilt in enumerate(reduction.u, places.query):
        one, where = dataclasses.replace(reduction, u=tilt), dataclasses.replace(places, query=query)
        found.append(plain_prefix_sums(one, cuts, where, plain_segment_sums(one, cuts, where)))
    return Sums(*(torch.stack(each) for each in zip(*map(Sums.parts, found), strict=True)))


def plain_segment_sums(reduction: Reduction, cuts: Cuts, places: Places) -> Tensor:
    """Peak, Σ e^{s}, Σ e^{s}ξ and Σ e^{2s}, relative to the peak, of each segment and replica: shape (rows, segments, 1 + 3k)."""
    found = []
    for start, stop in zip(cuts.starts.tolist(), cuts.stops.tolist(), strict=True):
        if start == stop:
            empty = reduction.u.new_zeros(places.rows, 1 + 3 * reduction.labels)
            found.append(torch.cat([empty[:, :1] - math.inf, empty[:, 1:]], -1))
            continue
        part = reduction.segment(*places.scalars(reduction, start, stop))
        power = torch.exp(part.log_power - 2 * part.peak.unsqueeze(-1))
        found.append(torch.cat([part.peak.unsqueeze(-1), part.mass, part.first, power], -1))
    return torch.stack(found, 1)


def plain_prefix_sums(reduction: Reduction, cuts: Cuts, places: Places, segments: Tensor) -> Sums:
    """Sums over each prefix with their residuals, from those of the segments: (rows, lengths), and (k,) or (k, d)."""
    first, found = int(cuts.starts[0]), []
    for length, whole, at in zip(cuts.lengths.tolist(), cuts.whole.tolist(), cuts.parts.tolist(), strict=True):
        items = torch.arange(first // ITEM, first // ITEM + whole + 1, device=reduction.u.device)
        x = places.normals(reduction, ITEMS, items)
        pieces = [(segments[:, :whole], x[:, :-1])]
        if at >= 0:
            own = segments[:, at : at + ITEM // PART]
            parts = torch.arange(ITEM // PART, device=items.device) + items[-1] * (ITEM // PART)
            y = torch.cat([x[:, -1:], places.normals(reduction, PARTS, parts[1:])], 1)
            x = _split(own, y)
            reached = (length - int(items[-1]) * ITEM) // PART
            pieces.append((own[:, :reached], x[:, :reached]))
            start = int(parts[0] + reached) * PART
            if start < length:
                own = _tokens(reduction, *places.scalars(reduction, start, min(start + PART, int(cuts.lengths[-1]))))
                tokens = torch.arange(start, start + own.shape[1], device=items.device)
                y = torch.cat([x[:, reached : reached + 1], places.normals(reduction, PARTS + 1, tokens[1:])], 1)
                pieces.append((own[:, : length - start], _split(own, y)[:, : length - start]))
        found.append(_total(*(torch.cat(each, 1) for each in zip(*pieces, strict=True))))
    return Sums(*(torch.stack(each, 1) for each in zip(*found, strict=True)))


def _tokens(reduction: Reduction, label: Tensor | None, xi: Tensor) -> Tensor:
    """Sums of single tokens, each a segment: (rows, tokens, 1 + 3k)."""
    labels = torch.zeros_like(xi, dtype=torch.long) if label is None else label
    own = torch.nn.functional.one_hot(labels, reduction.labels).to(xi.dtype)
    score = torch.addcmul(reduction.location[labels], reduction.scale[labels], xi)
    return torch.cat([score.unsqueeze(-1), own, own * xi.unsqueeze(-1), own], -1)


def _split(sums: Tensor, y: Tensor) -> Tensor:
    """Normals of segments with these sums, from y (rows, n, k, d)."""
    k = y.shape[2]
    power = sums[..., 1 + 2 * k :] * torch.exp(2 * (sums[..., :1] - sums[..., :1].amax(1, keepdim=True)))
    total = power.sum(1, keepdim=True)
    return reflected((power / torch.where(total > 0, total, 1.0)).sqrt().unsqueeze(-1), y)


def _total(sums: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Peak, mass, first and residual of segments taken together."""
    k = x.shape[2]
    peak = sums[..., 0].amax(1)
    relative = torch.exp(sums[..., 0] - peak.unsqueeze(-1)).unsqueeze(-1)
    mass, first = (relative * sums[..., 1 : 1 + 2 * k]).sum(1).split(k, -1)
    return peak, mass, first, ((relative * sums[..., 1 + 2 * k :].sqrt()).unsqueeze(-1) * x).sum(1)


def segment_sums(reduction: Reduction, cuts: Cuts, places: Places) -> Tensor:
    """What ``plain_segment_sums`` gives, by the kernel and for all queries: shape (queries, rows, segments, 1 + 3k)."""
    like, labels, count = reduction.u, reduction.labels, len(cuts.starts)
    found = like.new_empty((len(like), places.rows, count, 1 + 3 * labels))
    kernels().segment_sums[(count, places.rows, len(like))](
        found,
        cuts.starts,
        cuts.stops,
        *_law(reduction),
        places.seed,
        places.replica,
        places.query,
        LABELS=labels,
        PADDED=1 << (labels - 1).bit_length(),
        DOUBLE=like.dtype == torch.float64,
        LANES=LANES if labels == 1 else LANES // 2,
    )
    return found


def prefix_sums(reduction: Reduction, cuts: Cuts, places: Places, segments: Tensor) -> Sums:
    """What ``plain_prefix_sums`` gives, by the kernel and for all queries: (queries, rows, lengths), and (k,) or (k, d)."""
    like, labels, dim = reduction.u, reduction.labels, reduction.dim
    groups = -(-dim // counter.per_counter(like.dtype))
    shape = len(like), places.rows, len(cuts.lengths)
    found = Sums(*(like.new_empty((*shape, *more)) for more in ((), (labels,), (labels,), (labels, dim))))
    kernels().prefix_sums[(shape[0] * shape[1], shape[2], labels * -(-groups // GROUPS))](
        *found.parts(),
        segments,
        cuts.starts,
        cuts.lengths,
        cuts.whole,
        cuts.parts,
        *_law(reduction),
        places.seed,
        places.residual,
        places.rows,
        places.replica,
        places.query,
        segments.shape[2],
        dim,
        LABELS=labels,
        DOUBLE=like.dtype == torch.float64,
        ITEM=ITEM,
        PART=PART,
        TILE=128,
        GROUPS=GROUPS,
        num_warps=8,
    )
    return found


def _law(reduction: Reduction) -> tuple[Tensor, Tensor, Tensor]:
    """Locations, scales and cumulative shares; the first and the last are not read where there is one label."""
    scale = reduction.scale
    return (scale, scale, scale) if reduction.labels == 1 else (reduction.location, scale, _shares(reduction))


def _shares(reduction: Reduction) -> Tensor:
    """Cumulative shares in the precision of uniform numbers, which may be 1: those that round to it are never passed.

    In float32 components of share below 3e-8 that come last are therefore never drawn.
    """
    found = reduction.cumulative.to(reduction.u.dtype)
    return torch.where(found < 1, found, torch.inf)


def fused_here(mu: Gaussian | GaussianMixture) -> bool:
    """Whether the kernels draw the scalars of this law: on a GPU that has Triton."""
    labels = 1 if isinstance(mu, Gaussian) else mu.components
    known = mu.dtype in (torch.float32, torch.float64) and labels <= LABELS
    return known and mu.device.type == "cuda" and kernels() is not None


@functools.cache
def kernels() -> Any:
    """Kernels, compiled on use; None where there is no Triton, which comes with PyTorch's builds for GPUs."""
    try:
        from largeprompt.sampling import kernels
    except ImportError:
        return None
    return kernels
