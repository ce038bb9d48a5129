"""What one attention layer is given: queries, keys, values, mask, and scale."""

import dataclasses
import functools
import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError

# scores treated at a time, and more for each key: what a cache holds; what keeps a GPU busy
CHUNK_NUMBERS = {"cpu": (2**19, 2**6), "cuda": (2**24, 2**10)}


@dataclasses.dataclass(frozen=True)
class Rows:
    """Scores of a few queries against all keys, with the values.

    Averages, moments and read-outs are those of the measure Σ e^{b_l} δ_l / Σ e^{b_l} over keys and
    values: position biases b_l belong to the keys and not to the query.
    """

    scores: Tensor  # (batch, heads, t, S)
    value: Tensor  # (batch, groups, S, o)
    allowed: Tensor | None  # which keys may be read, broadcasts to the scores; None for all
    share: int  # heads in a group
    bias: Tensor | None = None  # 0 where a key may not be read

    def read(self, weights: Tensor, of: Tensor | None = None) -> Tensor:
        """Σ_l weights_l value_l, (batch, heads, t, o); ``of`` replaces the values."""
        value = self.value if of is None else of
        b, h, t, s = weights.shape
        grouped = weights.reshape(b * h // self.share, self.share * t, s)  # of no keys too
        return (grouped @ value.flatten(0, 1)).reshape(b, h, t, -1)

    def total(self, of: Tensor) -> Tensor:
        """Σ_l of_l by the keys' own weights: (batch, heads, t or 1, k) of (batch, groups, S, k)."""
        if self.bias is not None or (self.allowed is not None and self.allowed.shape[1] > 1):
            return self.read(self.everyone().to(of.dtype), of)
        if self.allowed is None:
            return of.sum(2, keepdim=True).repeat_interleave(self.share, 1)
        return (self.allowed.to(of.dtype) @ of).repeat_interleave(self.share, 1)

    def number(self) -> Tensor:
        """How many keys each query may read, a shape that broadcasts to (batch, heads, t)."""
        if self.allowed is None:
            return self.scores.new_full((1, 1, 1), self.scores.shape[-1])
        return self.allowed.sum(-1).to(self.scores.dtype)

    def masked(self, values: Tensor, otherwise: float = 0.0) -> Tensor:
        """``values`` where a key may be read, and ``otherwise`` elsewhere."""
        return values if self.allowed is None else values.masked_fill(~self.allowed, otherwise)

    def weighted(self, values: Tensor) -> Tensor:
        """``values`` times the keys' own weights, which sum to their number: 1 without biases."""
        if self.bias is None:
            return values
        own = torch.softmax(self.masked(self.bias, -torch.inf), -1)
        return values * own * self.number()[..., None]

    def everyone(self) -> Tensor:
        """The own weight of every key that may be read, (batch, heads, t, S)."""
        return self.weighted(self.masked(torch.ones_like(self.scores)))

    def centered(self) -> tuple[Tensor, Tensor]:
        """Mean score, (batch, heads, t), and the scores less this mean, 0 where not allowed."""
        scores = self.masked(self.scores)
        mean = self.weighted(scores).sum(-1) / self.number()
        return mean, self.masked(scores - mean[..., None])

    def whole(self) -> Tensor:
        """Scores with their biases, minus infinity where a key may not be read."""
        return self.masked(self.scores if self.bias is None else self.scores + self.bias, -math.inf)

    def weights(self) -> Tensor:
        """Softmax weights, (batch, heads, t, S)."""
        return torch.softmax(self.whole(), -1)


@dataclasses.dataclass(frozen=True, repr=False)
class Heads:
    """Inputs of softmax attention for all heads of a layer, as the model made them (after rotary
    embedding). Tensors or NumPy arrays.

    Attributes
    ----------
    query, key, value
        Shapes (batch, heads, T, d), (batch, groups, S, d), (batch, groups, S, o): ``heads`` is a
        multiple of ``groups``, and head h reads keys and values of group h // (heads / groups).
    mask
        None (every key), or shape (batch or 1, heads or 1, T, S): boolean (True: may be read), or
        numbers added to the scores, of which those far below zero (half the dtype's least number)
        forbid; the others are position biases (see :class:`Rows`).
    scale
        The score of a key is scale · query · key; 1/√d when left out.
    causal
        Query t sees keys up to t + S - T only; used where ``mask`` is None.
    cap
        Soft cap c of the scores, c tanh(score/c) before the mask's numbers are added; None for
        none.
    atoms
        How many of the first keys are no tokens but part of the model (learned sinks), which
        mixtures read exactly.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None = None
    scale: float = None  # type: ignore[assignment]  # 1/√d, once the width is known
    causal: bool = False
    cap: float | None = None
    atoms: int = 0

    def __post_init__(self) -> None:
        for name in ("query", "key", "value", *(() if self.mask is None else ("mask",))):
            each: Any = getattr(self, name)
            if isinstance(each, np.ndarray) and each.dtype.kind in "fb":
                each = torch.from_numpy(np.ascontiguousarray(each))
                validation.store(self, **{name: each})
            dense = isinstance(each, Tensor) and each.layout == torch.strided and not each.is_meta
            if not dense or not (each.is_floating_point() or name == "mask"):
                allowed = "a dense tensor of real numbers"
                raise InvalidArgumentError(name, validation.text(each), allowed)
        _check_shapes(self.query, self.key, self.value, self.mask)
        scale = self.query.shape[-1] ** -0.5 if self.scale is None else self.scale
        validation.store(
            self,
            scale=validation.number("scale", scale),
            causal=validation.flag("causal", self.causal),
            cap=None if self.cap is None else validation.positive("cap", self.cap),
            atoms=validation.integer("atoms", self.atoms, minimum=0),
        )
        heads, tokens = self.query.shape[1], max(self.query.shape[2], self.key.shape[2])
        if heads > tokens:
            warnings.warn(
                f"{heads} heads read only {tokens} tokens. The layout is (batch, heads, tokens, "
                "width): transpose(1, 2) where tokens come before heads.",
                stacklevel=3,
            )

    def like(self, **changes: Any) -> "Heads":
        """Return a copy with some fields changed, unchecked."""
        known = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return unchecked(**known | changes)

    def __repr__(self) -> str:
        kind = ", causal" * self.causal + ", masked" * (self.mask is not None)
        t, s = self.query.shape[2], self.key.shape[2]
        return (
            f"Heads(batch={self.batch}, heads={self.count}, queries={t}, keys={s}, "
            f"width={self.query.shape[3]}{kind})"
        )

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
        """The dtype of sums: float32 at least."""
        return torch.float64 if self.query.dtype == torch.float64 else torch.float32

    @property
    def allowed(self) -> Tensor | None:
        """Which keys the mask allows, of its shape; None without a mask."""
        if self.mask is None or self.mask.dtype == torch.bool:
            return self.mask
        return self.mask > torch.finfo(self.mask.dtype).min / 2

    @functools.cached_property
    def biased(self) -> bool:
        """Whether the mask's numbers do more than forbid keys."""
        if self.mask is None or self.mask.dtype == torch.bool or self.allowed is None:
            return False
        return bool(((self.mask != 0) & self.allowed).any())

    @property
    def present(self) -> Tensor:
        """Which keys some query may read, shape (batch or 1, S)."""
        if self.allowed is None:
            return torch.ones(1, self.key.shape[2], dtype=torch.bool, device=self.key.device)
        return self.allowed.flatten(1, 2).any(1)

    def pieces(self, positions: Tensor | None = None) -> Iterator[tuple[Tensor, "Heads"]]:
        """Yield a few of the query positions (all by default) at a time."""
        device, s = self.query.device, self.key.shape[2]
        if positions is None:
            positions = torch.arange(self.query.shape[2])
        heads = self.like(key=self.key.to(self.wide), value=self.value.to(self.wide))
        constant, each = CHUNK_NUMBERS.get(device.type, CHUNK_NUMBERS["cuda"])
        fit = (constant + each * s) // (self.batch * self.count * s)
        for piece in positions.split(max(1, fit)):
            yield piece, heads.at(piece.to(device))

    def rows(self, positions: Tensor | None = None) -> Iterator[tuple[Tensor, Rows]]:
        """Yield :meth:`pieces` with their scores."""
        for piece, heads in self.pieces(positions):
            yield piece.to(self.query.device), heads.scored()

    def at(self, positions: Tensor) -> "Heads":
        """The queries at these positions alone, before the same keys."""
        mask, s, t = self.mask, self.key.shape[2], self.query.shape[2]
        if mask is not None and mask.shape[2] > 1:
            mask = mask.index_select(2, positions)
        elif mask is None and self.causal:
            reach = positions[:, None] + s - t
            mask = (torch.arange(s, device=positions.device) <= reach)[None, None]
        return self.like(query=self.query.index_select(2, positions), mask=mask, causal=False)

    def first_keys(self, number: int) -> "Heads":
        """The same queries before the first so many keys."""
        key, value = self.key[:, :, :number], self.value[:, :, :number]
        mask = None if self.mask is None else self.mask[..., :number]
        return self.like(key=key, value=value, mask=mask)

    def scored(self) -> Rows:
        """Scores of all queries against all keys."""
        t, s = self.query.shape[2], self.key.shape[2]
        grouped = self.query.to(self.wide).reshape(*self.key.shape[:2], -1, self.query.shape[-1])
        scores = self.scale * grouped @ self.key.to(self.wide).mT
        scores = scores.reshape(self.batch, self.count, t, s)
        scores = scores if self.cap is None else self.cap * torch.tanh(scores / self.cap)
        allowed, bias = self.allowed, None
        if self.mask is not None and allowed is not None:
            allowed = allowed.expand(-1, -1, t, s)
            bias = torch.where(allowed, self.mask, 0.0).to(self.wide) if self.biased else None
        elif self.causal:
            allowed = torch.ones(t, s, dtype=torch.bool, device=scores.device).tril(s - t)
            allowed = allowed[None, None]
        return Rows(scores, self.value.to(self.wide), allowed, self.count // self.groups, bias)


def unchecked(**fields: Any) -> Heads:
    """Return heads without a check: from a model's own attention, or from others."""
    found = object.__new__(Heads)
    defaults = {"mask": None, "causal": False, "cap": None, "atoms": 0}
    vars(found).update(defaults | fields)
    return found


def _check_shapes(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> None:
    q, k, v = shapes = [tuple(each.shape) for each in (query, key, value)]
    if any(len(shape) != 4 or 0 in shape for shape in shapes):
        allowed = "four dimensions: (batch, heads, tokens, width), none of them 0"
        raise InvalidArgumentError("query, key, value", f"shapes {shapes}", allowed)
    if q[0] != k[0] or k[:3] != v[:3] or q[3] != k[3] or q[1] % k[1]:
        allowed = (
            "one batch size, one width of queries and keys, one count of keys and values, heads a "
            "multiple of key heads"
        )
        raise InvalidArgumentError("query, key, value", f"shapes {shapes}", allowed)
    if mask is None:
        return
    if mask.dtype != torch.bool and not mask.is_floating_point():
        allowed = "booleans (True: may be read), or numbers to add"
        raise InvalidArgumentError("mask", f"dtype {mask.dtype}", allowed, "mask.bool()")
    full = (*q[:3], k[2])
    if mask.dim() != 4 or any(a not in (1, b) for a, b in zip(mask.shape, full, strict=True)):
        allowed = f"a shape that broadcasts to {full}, or None"
        raise InvalidArgumentError("mask", f"shape {tuple(mask.shape)}", allowed)
