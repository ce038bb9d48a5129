"""What one attention layer is given: queries, keys, values, which keys each query may see, and the factor of the scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch
from torch import Tensor

from largeprompt.errors import InvalidArgumentError

CHUNK_NUMBERS = 2**23  # scores in memory at a time


@dataclasses.dataclass(frozen=True)
class Heads:
    """Inputs of softmax attention for all heads of a layer, as the model made them (after rotary embedding).

    Attributes
    ----------
    query, key, value
        Shapes (batch, heads, T, d), (batch, groups, S, d), (batch, groups, S, o): ``heads`` is a multiple of ``groups``, and head h
        reads keys and values of group h // (heads / groups).
    mask
        None (every key), or shape (batch or 1, heads or 1, T, S): boolean (True: may be read), or numbers added to the scores,
        of which those far below zero (half the dtype's least number) forbid.
    scale
        The score of a key is scale · query · key.
    causal
        Query t sees keys up to t + S - T only; used where ``mask`` is None.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    scale: float
    causal: bool = False

    def __post_init__(self) -> None:
        shapes = [tuple(each.shape) for each in (self.query, self.key, self.value)]
        if any(len(shape) != 4 for shape in shapes):
            raise InvalidArgumentError("query, key, value", f"shapes {shapes}", "four dimensions: (batch, heads, tokens, width)")
        q, k, v = shapes
        if not (q[0] == k[0] == v[0] and k[:3] == v[:3] and q[3] == k[3] and q[1] % k[1] == 0):
            allowed = "one batch size, one width of queries and keys, one count of keys and values, heads a multiple of key heads"
            raise InvalidArgumentError("query, key, value", f"shapes {shapes}", allowed)
        if self.mask is not None:
            if self.mask.dtype != torch.bool and not self.mask.is_floating_point():
                raise InvalidArgumentError(
                    "mask", f"dtype {self.mask.dtype}", "booleans (True: may be read), or numbers to add", "mask.bool()"
                )
            full = (q[0], q[1], q[2], k[2])
            fits = self.mask.dim() == 4 and all(a in (1, b) for a, b in zip(self.mask.shape, full, strict=True))
            if not fits:
                raise InvalidArgumentError("mask", f"shape {tuple(self.mask.shape)}", f"a shape that broadcasts to {full}, or None")

    @property
    def batch(self) -> int:
        """Number of texts."""
        return self.query.shape[0]

    @property
    def count(self) -> int:
        """Number of heads."""
        return self.query.shape[1]

    @property
    def groups(self) -> int:
        """Number of heads that have keys and values of their own."""
        return self.key.shape[1]

    @property
    def plain(self) -> bool:
        """Whether every query sees every key."""
        return self.mask is None and not self.causal

    def rows(self, positions: Tensor) -> Iterator[tuple[slice, Rows]]:
        """Pieces of the given query positions, each small enough that its scores fit in a chunk."""
        per_row = max(1, self.batch * self.count * self.key.shape[2])
        step = max(1, CHUNK_NUMBERS // per_row)
        for begin in range(0, len(positions), step):
            part = slice(begin, min(begin + step, len(positions)))
            yield part, self._rows(positions[part])

    def _rows(self, positions: Tensor) -> Rows:
        """Scores of some query positions; float32 at least."""
        wide = torch.float64 if self.query.dtype == torch.float64 else torch.float32
        key, value = self.key.to(wide), self.value.to(wide)
        query = self.query[:, :, positions].to(wide)
        b, h, t, d = query.shape
        grouped = query.reshape(b, self.groups, -1, d)  # the heads of a group one below the other
        scores = (self.scale * grouped @ key.mT).reshape(b, h, t, -1)
        allowed = None
        if self.mask is not None:
            mask = self.mask.expand(self.mask.shape[0], self.mask.shape[1], self.query.shape[2], -1)[:, :, positions]
            if mask.dtype == torch.bool:
                allowed = mask
            else:
                allowed = mask > torch.finfo(mask.dtype).min / 2
                scores = scores + torch.where(allowed, mask, 0.0).to(wide)
        elif self.causal:
            ahead = self.key.shape[2] - self.query.shape[2]
            allowed = torch.arange(self.key.shape[2], device=key.device) <= positions[:, None] + ahead
            allowed = allowed[None, None]
        if allowed is not None:
            allowed = allowed.expand(*allowed.shape[:2], t, key.shape[2])
        return Rows(scores, value, allowed, h // self.groups)


@dataclasses.dataclass(frozen=True)
class Rows:
    """Scores of a few queries against all keys, with the values.

    Attributes
    ----------
    scores
        Shape (batch, heads, t, S).
    value
        Shape (batch, groups, S, o).
    allowed
        Which keys may be read, a shape that broadcasts to that of ``scores``; None for all.
    share
        Heads per group of keys and values.
    """

    scores: Tensor
    value: Tensor
    allowed: Tensor | None
    share: int

    def read(self, weights: Tensor, of: Tensor | None = None) -> Tensor:
        """Σ_l weights_l value_l for weights (batch, heads, t, S): shape (batch, heads, t, o); ``of`` stands for the values."""
        value = self.value if of is None else of
        b, h, t, s = weights.shape
        return (weights.reshape(b, h // self.share, self.share * t, s) @ value).reshape(b, h, t, -1)

    def number(self) -> Tensor:
        """How many keys each query may read, shape that broadcasts to (batch, heads, t)."""
        if self.allowed is None:
            return torch.full((1, 1, 1), self.scores.shape[-1], dtype=self.scores.dtype, device=self.scores.device)
        return self.allowed.sum(-1).to(self.scores.dtype)

    def only_allowed(self, values: Tensor, otherwise: float = 0.0) -> Tensor:
        """``values`` where a key may be read, and ``otherwise`` elsewhere."""
        return values if self.allowed is None else values.masked_fill(~self.allowed, otherwise)

    def weights(self) -> tuple[Tensor, Tensor]:
        """Softmax weights, and the logarithm of the normaliser Σ e^score, shape (batch, heads, t, 1)."""
        scores = self.only_allowed(self.scores, -torch.inf)
        normaliser = scores.logsumexp(-1, keepdim=True)
        return torch.exp(scores - normaliser), normaliser
