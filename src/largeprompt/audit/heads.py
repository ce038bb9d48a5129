"""What one attention layer is given: queries, keys, values, which keys each query may see, and the factor of the scores."""

import dataclasses
from collections.abc import Iterator

import torch
from torch import Tensor

from largeprompt.errors import InvalidArgumentError

CHUNK_NUMBERS = 2**23  # scores in memory at a time


@dataclasses.dataclass(frozen=True)
class Rows:
    """Scores of a few queries against all keys, with the values.

    ``scores`` has the shape (batch, heads, t, S) and ``value`` the shape (batch, groups, S, o). ``allowed`` says which keys may be
    read, in a shape that broadcasts to that of ``scores``; None for all. ``share`` is the number of heads in a group.
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
            return self.scores.new_full((1, 1, 1), self.scores.shape[-1])
        return self.allowed.sum(-1).to(self.scores.dtype)

    def only_allowed(self, values: Tensor, otherwise: float = 0.0) -> Tensor:
        """``values`` where a key may be read, and ``otherwise`` elsewhere."""
        return values if self.allowed is None else values.masked_fill(~self.allowed, otherwise)

    def everyone(self) -> Tensor:
        """Weight 1 for every key that may be read, shape (batch, heads, t, S)."""
        return self.only_allowed(torch.ones_like(self.scores))

    def centred(self) -> tuple[Tensor, Tensor]:
        """Mean score of the keys that may be read, shape (batch, heads, t), and the scores less this mean, 0 elsewhere."""
        mean = self.only_allowed(self.scores).sum(-1) / self.number()
        return mean, self.only_allowed(self.scores - mean[..., None])

    def weights(self) -> tuple[Tensor, Tensor]:
        """Softmax weights, and the logarithm of the normaliser Σ e^score, shape (batch, heads, t, 1)."""
        scores = self.only_allowed(self.scores, -torch.inf)
        normaliser = scores.logsumexp(-1, keepdim=True)
        return torch.exp(scores - normaliser), normaliser


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
    cap
        Soft cap c of the scores, c tanh(score/c) before the mask's numbers are added; None for none.
    atoms
        How many of the first keys are no tokens but part of the model (learned sinks), which mixtures read exactly.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    scale: float
    causal: bool = False
    cap: float | None = None
    atoms: int = 0

    def __post_init__(self) -> None:
        q, k, v = shapes = [tuple(each.shape) for each in (self.query, self.key, self.value)]
        if any(len(shape) != 4 for shape in shapes):
            raise InvalidArgumentError("query, key, value", f"shapes {shapes}", "four dimensions: (batch, heads, tokens, width)")
        if q[0] != k[0] or k[:3] != v[:3] or q[3] != k[3] or q[1] % k[1]:
            allowed = "one batch size, one width of queries and keys, one count of keys and values, heads a multiple of key heads"
            raise InvalidArgumentError("query, key, value", f"shapes {shapes}", allowed)
        if self.mask is None:
            return
        if self.mask.dtype != torch.bool and not self.mask.is_floating_point():
            allowed = "booleans (True: may be read), or numbers to add"
            raise InvalidArgumentError("mask", f"dtype {self.mask.dtype}", allowed, "mask.bool()")
        full = (*q[:3], k[2])
        if self.mask.dim() != 4 or any(a not in (1, b) for a, b in zip(self.mask.shape, full, strict=True)):
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
    def wide(self) -> torch.dtype:
        """In which sums are taken: float32 at least."""
        return torch.float64 if self.query.dtype == torch.float64 else torch.float32

    @property
    def allowed(self) -> Tensor | None:
        """Which keys the mask allows, of its shape; None without a mask."""
        if self.mask is None or self.mask.dtype == torch.bool:
            return self.mask
        return self.mask > torch.finfo(self.mask.dtype).min / 2

    def rows(self, positions: Tensor | None = None) -> Iterator[tuple[Tensor, Rows]]:
        """Pieces of the given query positions (all by default), each small enough that its scores fit in a chunk."""
        t, s = self.query.shape[2], self.key.shape[2]
        places = torch.arange(t, device=self.query.device) if positions is None else positions.to(self.query.device)
        key, value, reachable = self.key.to(self.wide), self.value.to(self.wide), self.allowed
        for piece in places.split(max(1, CHUNK_NUMBERS // max(1, self.batch * self.count * s))):
            query = self.query[:, :, piece].to(self.wide)
            grouped = query.reshape(self.batch, self.groups, -1, query.shape[-1])  # the heads of a group one below the other
            scores = (self.scale * grouped @ key.mT).reshape(self.batch, self.count, -1, s)
            scores = scores if self.cap is None else self.cap * torch.tanh(scores / self.cap)
            allowed = None
            if self.mask is not None and reachable is not None:
                mask, allowed = (each.expand(-1, -1, t, -1)[:, :, piece] for each in (self.mask, reachable))
                scores = scores if mask.dtype == torch.bool else scores + torch.where(allowed, mask, 0.0).to(self.wide)
            elif self.causal:
                allowed = (torch.arange(s, device=key.device) <= piece[:, None] + s - t)[None, None]
            if allowed is not None:
                allowed = allowed.expand(-1, -1, len(piece), s)
            yield piece, Rows(scores, value, allowed, self.count // self.groups)
