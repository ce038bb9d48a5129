"""Measures with finitely many atoms, read in chunks of bounded memory."""

import abc
import functools
import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from largeprompt import validation
from largeprompt.measures.base import Measure
from largeprompt.measures.numerics.special import log_sum, weighted_softmax
from largeprompt.measures.placed import TensorMeasure, random_index
from largeprompt.measures.running import RunningTilt, log_masses
from largeprompt.measures.score_nodes import ScoreNodes
from largeprompt.validation import ArrayLike

# largest intermediate array while streaming: in the cache, or a GPU kept busy
CHUNK_ELEMENTS = {"cpu": 2**20, "cuda": 2**26}
# bytes of tokens for which two products take less time than the fused kernel, for one tilt on a CPU
CACHED = 2**22
FUSED_DTYPES = {"cpu": (torch.float32, torch.float64), "cuda": (torch.float16, torch.bfloat16)}
State = TypeVar("State")


class AtomicMeasure(TensorMeasure):
    """Σ_l ω_l δ_{x_l}: Λ is the log-mean-exp of the scores u·x_l, ∇Λ the softmax average."""

    relative_precision = True
    weights: Tensor | None  # ω_l, shape (..., l); None when all are equal

    @property
    @abc.abstractmethod
    def points(self) -> Tensor:
        """Atoms x_l, shape (..., l, d)."""

    @property
    def count(self) -> int:
        """Number of atoms."""
        return self.points.shape[-2]

    @property
    def dim(self) -> int:
        return self.points.shape[-1]

    @property
    def batch_shape(self) -> torch.Size:
        if self.weights is None:
            return self.points.shape[:-2]
        return torch.Size(np.broadcast_shapes(self.points.shape[:-2], self.weights.shape[:-1]))

    @property
    def support_radius(self) -> float:
        return float(torch.linalg.vector_norm(self.points, dim=-1).max())

    @property
    def _like(self) -> Tensor:
        return self.points

    @property
    def _mass(self) -> Tensor:
        """ω_l, shape (..., l)."""
        if self.weights is not None:
            return self.weights
        return self.points.new_full((self.count,), 1 / self.count)

    def running(self, u: ArrayLike, *, covariance: bool = False) -> RunningTilt:
        """Mergeable state of softmax attention for tilts u, in one pass over the atoms.

        Each atom has mass one (l·ω_l when weighted): shards merge in proportion to their sizes.
        """
        mu, u = self._at(u)
        return mu._running(u, covariance=covariance)

    def _running(self, u: Tensor, *, covariance: bool = False) -> RunningTilt:
        queries, restore = self._layout(u)
        read = functools.partial(RunningTilt.of, covariance=covariance)
        blocks = self._stream(queries, read, RunningTilt.merge, width=self.dim if covariance else 1)
        spread = [block.covariance for block in blocks if block.covariance is not None]
        return RunningTilt(
            restore(torch.cat([block.log_mass for block in blocks], -1), 0),
            queries.new_full((), math.log(self.count)),
            restore(torch.cat([block.mean for block in blocks], -2), 1),
            restore(torch.cat(spread, -3), 2) if spread else None,
        )

    def _cgf(self, u: Tensor) -> Tensor:
        return self._running(u).cgf

    def _tilted_mean(self, u: Tensor) -> Tensor:
        if not self._fused(u):
            return self._running(u).mean
        points = self.points
        if self.batch_shape:
            queries, restore = self._layout(u)
            points = self._squeezed(points, 2)
            q, x = (t.reshape(math.prod(t.shape[:-2]), 1, *t.shape[-2:]) for t in (queries, points))
            found: Tensor = scaled_dot_product_attention(q, x, x, scale=1.0)
            return restore(found.reshape(queries.shape), 1)
        tilts = u.reshape(-1, self.dim)
        if len(tilts) == 1 and points.nbytes <= CACHED:
            return (torch.softmax(tilts @ points.mT, -1) @ points).reshape(u.shape)
        q, x = tilts[None, None], points[None, None]
        return scaled_dot_product_attention(q, x, x, scale=1.0).reshape(u.shape)

    def _tilted_covariance(self, u: Tensor) -> Tensor:
        covariance = self._running(u, covariance=True).covariance
        assert covariance is not None  # asked for in the line above
        return covariance

    def _tilted_norm_moment4(self, u: Tensor, center: Tensor, V: Tensor | None = None) -> Tensor:
        u, center = torch.broadcast_tensors(u, center)
        total = self._running(u).log_mass.unsqueeze(-1)
        pairs, restore = self._layout(torch.cat([u, center, total], -1))

        def read(pair: Tensor, tokens: Tensor, masses: Tensor | None) -> Tensor:
            tilt, point, log_mass = pair.split([self.dim, self.dim, 1], -1)
            weights = torch.exp(tilt @ tokens.mT - log_mass)
            weights = weights if masses is None else weights * masses.unsqueeze(-2)
            offset = tokens.unsqueeze(-3) - point.unsqueeze(-2)
            size = offset.square().sum(-1)
            own = size if V is None else (offset @ V.mT).square().sum(-1)
            total: Tensor = (weights * size * own).sum(-1)
            return total

        return restore(torch.cat(self._stream(pairs, read, torch.add, width=self.dim), -1), 0)

    def largest_scores(self, u: ArrayLike, count: int) -> Tensor:
        """The ``count`` largest scores u·x_l for each tilt, descending, shape (..., count).

        Weights of the atoms do not enter. Read in chunks: no array of all the scores is made.
        """
        count = validation.integer("count", count, maximum=self.count)
        mu, u = self._at(u)
        queries, restore = mu._layout(u)

        def largest(scores: Tensor) -> Tensor:
            return scores.topk(min(count, scores.shape[-1]), dim=-1).values

        def both(*parts: Tensor) -> Tensor:
            return largest(torch.cat(parts, -1))

        blocks = mu._stream(queries, lambda u, x, _: largest(u @ x.mT), both, width=1)
        return restore(torch.cat(blocks, -2), 1)

    def _complex_cumulants(self, w: Tensor, order: int = 2) -> tuple[Tensor, ...]:
        points = self.points.to(w.dtype)
        exponents = w @ points.mT
        value = log_sum(self._mass, exponents)
        share = weighted_softmax(self._mass, exponents).unsqueeze(-1)
        mean = (share * points).sum(-2)
        centered = points - mean.unsqueeze(-2)
        return (value, mean, (share * centered).mT @ centered)[: order + 1]

    def _score_nodes(self, u: Tensor, top: float) -> list[ScoreNodes]:
        points = self.points.numpy()
        with np.errstate(divide="ignore"):
            log_mass = np.log(self._mass.numpy())
        # in parts that stay in the cache, for each τ of a finite prompt's law
        parts = (slice(start, start + 512) for start in range(0, self.count, 512))
        return [ScoreNodes(log_mass[at], points[at] @ u.numpy(), points[at]) for at in parts]

    def _tilt(self, u: Tensor) -> Measure:
        scores = (self.points @ u.unsqueeze(-1)).squeeze(-1)  # (..., l)
        if self.weights is not None:
            scores = scores + log_masses(self.weights)
        return self._trusted(self.points, torch.softmax(scores, -1))

    def _map(self, matrix: Tensor, offset: Tensor) -> Measure:
        return self._trusted(self.points @ matrix.mT + offset, self.weights)

    def _sample(self, n: int, generator: torch.Generator) -> Tensor:
        shape = (*self.batch_shape, n)
        if self.weights is None:
            index = torch.randint(self.count, shape, generator=generator, device=self.device)
        else:
            index = random_index(self.weights.to(torch.float64), shape, generator)
        points = self.points.expand(*self.batch_shape, -1, -1)
        return torch.take_along_dim(points, index.unsqueeze(-1), dim=-2)

    def _fused(self, u: Tensor) -> bool:
        """Whether to use PyTorch's fused kernel: no second derivatives, no float64 on GPUs."""
        recorded = torch.is_grad_enabled() and (u.requires_grad or self.points.requires_grad)
        fits = self.dtype in FUSED_DTYPES.get(self.device.type, ()) and u.numel() > 0
        return self.weights is None and fits and not recorded

    def _squeezed(self, value: Tensor, kept: int) -> Tensor:
        """Expand to the batch shape, without dimensions of size one; the last ``kept`` stay."""
        tail = value.shape[value.dim() - kept :]
        batch = (size for size in self.batch_shape if size != 1)
        return value.expand(*self.batch_shape, *tail).reshape(*batch, *tail)

    def _layout(self, u: Tensor) -> tuple[Tensor, Callable[[Tensor, int], Tensor]]:
        """Arrange tilts as ``(*shared, n, ·)``, n for each measure, and how to put results back."""
        full = np.broadcast_shapes(u.shape[:-1], self.batch_shape)
        padded = (1,) * (len(full) - len(self.batch_shape)) + tuple(self.batch_shape)
        order = sorted(range(len(full)), key=lambda i: padded[i] == 1)  # shared first
        shared = [full[i] for i in order if padded[i] != 1]
        arranged = u.expand(*full, u.shape[-1]).permute(*order, -1)
        free = math.prod(full[i] for i in order if padded[i] == 1)
        queries = arranged.reshape(*shared, free, u.shape[-1])

        def restore(result: Tensor, extra: int) -> Tensor:
            tail = result.shape[result.dim() - extra :]
            unpacked = result.reshape([full[i] for i in order] + list(tail))
            back = [order.index(i) for i in range(len(full))]
            return unpacked.permute(back + list(range(len(full), len(full) + extra)))

        return queries, restore

    def _stream(
        self,
        queries: Tensor,
        read: Callable[[Tensor, Tensor, Tensor | None], State],
        merge: Callable[[State, State], State],
        *,
        width: int,
    ) -> list[State]:
        """Reduce over the atoms in chunks; ``read`` holds ``width`` numbers by tilt and token."""
        points = self._squeezed(self.points, 2)
        masses = None if self.weights is None else self._squeezed(self.weights, 1) * self.count
        shared = max(1, math.prod(queries.shape[:-2]))
        most = CHUNK_ELEMENTS.get(queries.device.type, CHUNK_ELEMENTS["cuda"])
        rows = max(1, min(queries.shape[-2], most // (shared * width * min(self.count, 1024))))
        columns = max(1, most // (shared * max(rows * width, self.dim)))
        given = [queries, points] if masses is None else [queries, points, masses]
        recorded = torch.is_grad_enabled() and any(each.requires_grad for each in given)

        def part(block: Tensor, start: int) -> State:
            tokens = points[..., start : start + columns, :]
            mass = None if masses is None else masses[..., start : start + columns]
            # compute scores anew in the backward pass rather than keep them all
            if recorded and columns < self.count:
                state: State = checkpoint(read, block, tokens, mass, use_reentrant=False)
                return state
            return read(block, tokens, mass)

        return [
            functools.reduce(merge, (part(block, start) for start in range(0, self.count, columns)))
            for block in queries.split(rows, dim=-2)
        ]
