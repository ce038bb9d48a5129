"""Nested prompts of Gaussian tokens by drawing one scalar for each token instead of a vector.

A token of component k is m_k + R_k (ξ e_k + r) with Γ_k = R_k R_k^T, R_k^T u = σ_k e_k and |e_k| =
1: formula (law.1) of docs/mathematics/finite_prompt.md. The scalar ξ ~ N(0, 1) and the residual r ~
N(0, I - e_k e_k^T) are independent, and the score s = u·m_k + σ_k ξ does not see r. Given labels
and scalars, Σ e^s r is Gaussian with covariance P (I - e_k e_k^T), P = Σ e^{2s}. It is drawn with
covariance P I; its part along e_k is taken out at the end.

Tokens come in pieces of about √L. Over a whole piece the residual sum is √P x, with a standard
normal vector x for each component. Over the first n tokens of a piece it is a Brownian bridge to
there: with a standard normal vector η_l for each token,

    B_n = W_n + (P_n/P) (√P x - W), W_n = Σ_{l ≤ n} e^{s_l} η_l, P_n = Σ_{l ≤ n} e^{2 s_l}, W and P
    over the whole piece.

So Cov(B_n, B_m) = P_n I for n ≤ m, as it must be, and neither x nor η depends on which lengths are
recorded.
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
from largeprompt.sampling.streams import Grid, keyed_generator, side_by_side

# tokens: a length that ends inside a piece costs a normal vector for each of them
LONGEST_PIECE = 2**12


@dataclasses.dataclass(frozen=True)
class Tokens:
    """Scores (rows, n, k, p), minus infinity for components other than the token's own, and scalars
    ξ (rows, n, p) of n pieces.
    """

    scores: Tensor
    xi: Tensor

    @functools.cached_property
    def peak(self) -> Tensor:
        """Largest score (rows, n, k), to which the sums are relative; finite where a component has
        no token.
        """
        return self.scores.amax(-1).clamp_min(torch.finfo(self.scores.dtype).min)

    @functools.cached_property
    def weights(self) -> Tensor:
        """e^{s - peak}, (rows, n, k, p)."""
        return torch.exp(self.scores - self.peak.unsqueeze(-1))

    @functools.cached_property
    def root(self) -> Tensor:
        """√P, (rows, n, k, 1)."""
        root: Tensor = torch.linalg.vector_norm(self.weights, dim=-1, keepdim=True)
        return root

    def sums(self, residual: Tensor) -> Tensor:
        """Σ e^s, Σ e^s ξ and Σ e^s r side by side, (rows, n, k, 2 + d), given the last one."""
        seen = self.weights.sum(-1), torch.linalg.vecdot(self.weights, self.xi.unsqueeze(-2))
        return torch.cat([torch.stack(seen, -1), residual], -1)

    def start(self, place: int, count: int | None = None) -> Tokens:
        """The first tokens of one piece, or all of them."""
        return Tokens(
            self.scores[:, place : place + 1, :, :count], self.xi[:, place : place + 1, :count]
        )

    def bridge(self, start: Tokens, residual: Tensor, eta: Tensor) -> Tensor:
        """Σ e^s r over the start of a piece (rows, 1, k, d), given that over the whole piece and η
        (rows, 1, p, d).
        """
        # a root is 1 at least, or 0 where there is no token
        power = (start.root / self.root.clamp_min(1.0)).square()
        gain = torch.exp(start.peak - self.peak).unsqueeze(-1) * power
        return start.weights @ eta[:, :, : start.xi.shape[-1]] + gain * (
            residual - self.weights @ eta
        )


@dataclasses.dataclass(frozen=True)
class ScalarStream:
    """Labels, scalars and residuals of every replica, for one query."""

    means: Tensor  # (k, d)
    roots: Tensor  # (k, d, d)
    shares: Tensor  # cumulative weights of the components, (k,)
    u: Tensor  # tilt, (d,)
    length: int
    seed: int
    query: int

    @classmethod
    def of(
        cls, mu: Gaussian | GaussianMixture, u: Tensor, length: int, seed: int, query: int
    ) -> ScalarStream:
        """Stream of a law; shares are in double precision, where small ones are
        not rounded away.
        """
        if isinstance(mu, Gaussian):
            return cls(
                mu.mean.unsqueeze(0),
                mu._root.unsqueeze(0),
                mu.mean.new_ones(1),
                u,
                length,
                seed,
                query,
            )
        shares = mu.weights.cumsum(-1, dtype=torch.float64)
        return cls(mu.means, mu._roots, shares / shares[-1], u, length, seed, query)

    @functools.cached_property
    def along(self) -> tuple[Tensor, Tensor, Tensor]:
        """u·m_k less the largest (k,), σ_k (k,), and e_k (k, d), which is 0 where scores are
        constant.
        """
        middle, a = self.means @ self.u, self.u @ self.roots
        # taken out, since squares of very small numbers are 0
        largest = a.abs().amax(-1, keepdim=True)
        relative = a / torch.where(largest > 0, largest, 1.0)
        size = torch.linalg.vector_norm(relative, dim=-1, keepdim=True)
        return middle - middle.amax(), (largest * size).squeeze(-1), relative / size.clamp_min(1.0)

    @property
    def piece(self) -> int:
        """Tokens in a piece."""
        return min(LONGEST_PIECE, math.isqrt(self.length - 1) + 1)

    @property
    def grid(self) -> Grid:
        """Cells that the stream is drawn in; a piece is what ``Grid`` calls a token."""
        (k, d), p = self.means.shape, self.piece
        width = p * (2 + 2 * k) + k * (2 + d)  # scalars, labels, scores and weights; sums
        return Grid(-(-self.length // p), width, p * d, self.u.device.type)

    def normals(self, generator: torch.Generator, rows: int, *shape: int) -> Tensor:
        """Standard normals for the first replicas of a block, drawn for all of them."""
        return torch.randn(
            self.grid.replicas,
            *shape,
            generator=generator,
            dtype=self.u.dtype,
            device=self.u.device,
        )[:rows]

    def cell(self, block: int, cell: int, rows: int) -> tuple[Tokens, Tensor]:
        """Tokens and x (rows, n, k, d) of the pieces of a cell, for the first ``rows`` replicas of
        a block.
        """
        (first, last), (middle, scale, direction) = self.grid.span(cell), self.along
        generator, label = keyed_generator(self.u.device, self.seed, self.query, block, cell), None
        if len(scale) > 1:
            shape = self.grid.replicas, last - first, 1, self.piece
            uniform = torch.rand(
                shape, generator=generator, dtype=self.shares.dtype, device=self.u.device
            )[:rows]
            label = torch.searchsorted(self.shares, uniform, right=True).clamp_max_(len(scale) - 1)
        xi = self.normals(generator, rows, last - first, self.piece)
        scores = torch.addcmul(middle.unsqueeze(-1), scale.unsqueeze(-1), xi.unsqueeze(-2))
        if label is not None:
            scores.masked_fill_(
                label != torch.arange(len(scale), device=self.u.device).unsqueeze(-1), -math.inf
            )
        return Tokens(scores, xi), self.normals(generator, rows, last - first, *direction.shape)

    def averages(self, lengths: Sequence[int], block: int, rows: int) -> Iterator[Tensor]:
        """Softmax averages (rows, d) of the tokens up to each length in turn, for the first
        ``rows`` replicas of a block.
        """
        (k, d), p = self.means.shape, self.piece
        # in which piece each length ends
        places = itertools.groupby(lengths, lambda length: (length - 1) // p)
        counts = {place: [length - place * p for length in some] for place, some in places}
        known = (
            self.u.new_full((rows, 1, k), torch.finfo(self.u.dtype).min),
            self.u.new_zeros(rows, 1, k, 2 + d),
        )
        for cell in range(self.grid.cells):
            (first, last), (tokens, x) = self.grid.span(cell), self.cell(block, cell, rows)
            residual = tokens.root * x
            peak, sums = tokens.peak, tokens.sums(residual)
            for place in sorted(counts.keys() & range(first, last)):
                at = place - first
                before, piece, end = (
                    joined(known, (peak[:, :at], sums[:, :at])),
                    tokens.start(at),
                    residual[:, at : at + 1],
                )
                generator = keyed_generator(self.u.device, self.seed, self.query, block, cell, at)
                eta = self.normals(generator, rows, 1, p, d) if counts[place][0] < p else None
                for count in counts[place]:
                    start = tokens.start(at, count)
                    rest = end if eta is None or count == p else piece.bridge(start, end, eta)
                    yield self.average(*joined(before, (start.peak, start.sums(rest))))
            known = joined(known, (peak, sums))

    def average(self, peak: Tensor, sums: Tensor) -> Tensor:
        """Σ_k (m_k Σ e^s + R_k y_k) / Σ e^s, (rows, d): y_k is Σ e^s r with its component along e_k
        replaced by Σ e^s ξ.
        """
        sums = (torch.exp(peak - peak.amax(-1, keepdim=True)).unsqueeze(-1) * sums).squeeze(1)
        mass, first, residual, direction = (
            sums[..., 0],
            sums[..., 1:2],
            sums[..., 2:],
            self.along[2],
        )
        y = residual + (first - (direction * residual).sum(-1, keepdim=True)) * direction
        return (mass @ self.means + torch.einsum("rkd,ked->re", y, self.roots)) / mass.sum(
            -1, keepdim=True
        )


def joined(*parts: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Largest peak (rows, 1, k) of sets of tokens (rows, n, k), and their sums (rows, 1, k, 2 + d)
    relative to it.
    """
    peak, sums = (torch.cat(each, 1) for each in zip(*parts, strict=True))
    top = peak.amax(1, keepdim=True)
    return top, (torch.exp(peak - top).unsqueeze(-1) * sums).sum(1, keepdim=True)


def sample_reduced(
    u: Tensor,
    V: Tensor,
    mu: Gaussian | GaussianMixture,
    lengths: Sequence[int],
    replicas: int,
    seed: int,
) -> Tensor:
    """Outputs V T_L for tilts u (n, d), shape (n_lengths, replicas, n, o); each query has its own
    tokens.
    """
    outputs = u.new_empty(len(lengths), replicas, len(u), len(V))
    for query, tilt in enumerate(u):
        stream = ScalarStream.of(mu, tilt, lengths[-1], seed, query)

        def read(
            block: int, rows: slice, query: int = query, stream: ScalarStream = stream
        ) -> None:
            for i, average in enumerate(stream.averages(lengths, block, rows.stop - rows.start)):
                outputs[i, rows, query] = average @ V.mT

        side_by_side(read, stream.grid.blocks(replicas), u.device)
    return outputs
