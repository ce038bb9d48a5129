"""What one attention layer is given: queries, keys, values, which keys each query may see, and the
factor of the scores.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError

# scores at a time, and more for each key: what a cache holds; and what keeps a GPU busy and is
# small beside what a pass needs
CHUNK_NUMBERS = {"cpu": (2**19, 2**6), "cuda": (7 * 2**21, 3 * 2**9)}


# fewest keys that a GPU sums in one piece, and how many pieces keep it busy
STRETCH, SIDE_BY_SIDE = 1024, 256


@dataclasses.dataclass(frozen=True)
class Rows:
    """Scores of a few queries against all keys, with the values.

    ``scores`` has the shape (batch, heads, t, S) and ``value`` the shape (batch, groups, S, o).
    ``allowed`` says which keys may be read, in a shape that broadcasts to that of ``scores``; None
    for all. ``share`` is the number of heads in a group. Every query may read the ``first`` so many
    keys, among which nobody looks for forbidden ones.

    ``bias`` are offsets b_l of the scores that depend on positions, 0 where a key may not be read;
    None for none. They belong to the keys and not to the query: keys l have the weights e^{b_l}
    before it tilts them, so that averages, moments and read-outs are those of the measure Σ e^{b_l}
    δ_l / Σ e^{b_l} over keys and values.
    """

    scores: Tensor
    value: Tensor
    allowed: Tensor | None
    share: int
    bias: Tensor | None = None
    first: int = 0

    def read(self, weights: Tensor, of: Tensor | None = None) -> Tensor:
        """Σ_l weights_l value_l for weights (batch, heads, t, S): shape (batch, heads, t, o);
        ``of`` stands for the values.
        """
        value = self.value if of is None else of
        b, h, t, s = weights.shape
        grouped = weights.reshape(b * h // self.share, self.share * t, s)  # of no keys too
        return summed(grouped, value.flatten(0, 1)).reshape(b, h, t, -1)

    def total(self, of: Tensor) -> Tensor:
        """Σ_l of_l over the keys that may be read, by their own weights: (batch, heads, t or 1, k)
        of (batch, groups, S, k).
        """
        if self.bias is not None or (self.allowed is not None and self.allowed.shape[1] > 1):
            return self.read(self.everyone().to(of.dtype), of)
        if self.allowed is None:
            found = of.sum(2, keepdim=True)
        else:
            found = self.allowed[..., self.first :].to(of.dtype) @ of[:, :, self.first :]
            found = found + of[:, :, : self.first].sum(2, keepdim=True) if self.first else found
        return found.repeat_interleave(self.share, 1)

    def number(self) -> Tensor:
        """How many keys each query may read, shape that broadcasts to (batch, heads, t)."""
        if self.allowed is None:
            return self.scores.new_full((1, 1, 1), self.scores.shape[-1])
        return (self.first + self.allowed[..., self.first :].sum(-1)).to(self.scores.dtype)

    def beyond(self, first: int) -> "Rows":
        """The keys after the first so many alone, where there are no biases."""
        allowed = None if self.allowed is None else self.allowed[..., first:]
        return Rows(self.scores[..., first:], self.value[:, :, first:], allowed, self.share)

    def only_allowed(self, values: Tensor, otherwise: float = 0.0) -> Tensor:
        """``values`` where a key may be read, and ``otherwise`` elsewhere."""
        return values if self.allowed is None else self.forbid(values.clone(), otherwise)

    def forbid(self, values: Tensor, otherwise: float = 0.0) -> Tensor:
        """:meth:`only_allowed` in place, of ``values`` with all keys of all queries."""
        if self.forbidden is not None:
            values[..., self.first :].masked_fill_(self.forbidden, otherwise)
        return values

    @functools.cached_property
    def forbidden(self) -> Tensor | None:
        """Which keys beyond the first may not be read; None where all may."""
        return None if self.allowed is None else ~self.allowed[..., self.first :]

    def weighted(self, values: Tensor) -> Tensor:
        """``values`` (batch, heads, t, S) times the keys' own weights, which sum to their number:
        all 1 without biases.
        """
        if self.bias is None:
            return values
        return (
            values
            * torch.softmax(self.only_allowed(self.bias, -torch.inf), -1)
            * self.number()[..., None]
        )

    def everyone(self) -> Tensor:
        """The own weight of every key that may be read, 1 without biases, shape (batch, heads, t,
        S).
        """
        return self.weighted(self.only_allowed(torch.ones_like(self.scores)))

    def centred(self) -> tuple[Tensor, Tensor]:
        """Mean score of the keys that may be read, shape (batch, heads, t), and the scores less
        this mean, 0 elsewhere.
        """
        scores = self.only_allowed(self.scores)
        mean = self.weighted(scores).sum(-1) / self.number()
        return mean, self.forbid(scores - mean[..., None])

    def whole(self) -> Tensor:
        """Scores with their biases, minus infinity where a key may not be read."""
        return self.only_allowed(
            self.scores if self.bias is None else self.scores + self.bias, -torch.inf
        )

    def weights(self) -> tuple[Tensor, Tensor]:
        """Softmax weights, and log Σ e^{s + b} of scores and biases less log (Σ e^b / n), shape
        (batch, heads, t, 1).
        """
        scores = self.whole()
        normaliser = scores.logsumexp(-1, keepdim=True)
        weights = torch.exp(scores - normaliser)
        if self.bias is None:
            return weights, normaliser
        own = (
            self.only_allowed(self.bias, -torch.inf).logsumexp(-1, keepdim=True)
            - torch.log(self.number())[..., None]
        )
        return weights, normaliser - own


@dataclasses.dataclass(frozen=True, repr=False)
class Heads:
    """Inputs of softmax attention for all heads of a layer, as the model made them (after rotary
    embedding).

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
        The score of a key is scale · query · key.
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
    mask: Tensor | None
    scale: float
    causal: bool = False
    cap: float | None = None
    atoms: int = 0

    def __post_init__(self) -> None:
        for name in ("query", "key", "value", *(() if self.mask is None else ("mask",))):
            each: Any = getattr(self, name)
            dense = isinstance(each, Tensor) and each.layout == torch.strided and not each.is_meta
            if not dense or not (each.is_floating_point() or name == "mask"):
                raise InvalidArgumentError(
                    name, validation.text(each), "a dense tensor of real numbers"
                )
        if not (isinstance(self.scale, float) and math.isfinite(self.scale)):
            validation.store(self, scale=validation.number("scale", self.scale))
        if self.cap is not None:
            validation.store(self, cap=validation.positive("cap", self.cap))
        causal, atoms = (
            validation.flag("causal", self.causal),
            validation.integer("atoms", self.atoms, minimum=0),
        )
        validation.store(self, causal=causal, atoms=atoms)
        q, k, v = shapes = [tuple(each.shape) for each in (self.query, self.key, self.value)]
        if any(len(shape) != 4 or 0 in shape for shape in shapes):
            allowed = "four dimensions: (batch, heads, tokens, width), none of them 0"
            raise InvalidArgumentError("query, key, value", f"shapes {shapes}", allowed)
        if q[0] != k[0] or k[:3] != v[:3] or q[3] != k[3] or q[1] % k[1]:
            allowed = (
                "one batch size, one width of queries and keys, one count of keys and "
                "values, heads a multiple of key heads"
            )
            raise InvalidArgumentError("query, key, value", f"shapes {shapes}", allowed)
        if self.mask is None:
            return
        if self.mask.dtype != torch.bool and not self.mask.is_floating_point():
            allowed = "booleans (True: may be read), or numbers to add"
            raise InvalidArgumentError("mask", f"dtype {self.mask.dtype}", allowed, "mask.bool()")
        full = (*q[:3], k[2])
        if self.mask.dim() != 4 or any(
            a not in (1, b) for a, b in zip(self.mask.shape, full, strict=True)
        ):
            raise InvalidArgumentError(
                "mask",
                f"shape {tuple(self.mask.shape)}",
                f"a shape that broadcasts to {full}, or None",
            )

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
        """In which sums are taken: float32 at least."""
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

    def rows(self, positions: Tensor | None = None) -> Iterator[tuple[Tensor, Rows]]:
        """Pieces of the given query positions (all by default), each small enough that its scores
        fit in a chunk.
        """
        device = self.query.device
        places = (
            torch.arange(self.query.shape[2], device=device)
            if positions is None
            else positions.to(device)
        )
        wide = dataclasses.replace(self, key=self.key.to(self.wide), value=self.value.to(self.wide))
        for piece in places.split(
            max(1, chunk_numbers(self) // max(1, self.batch * self.count * self.key.shape[2]))
        ):
            yield piece, wide.at(piece).scored()

    def at(self, positions: Tensor) -> "Heads":
        """The queries at these positions alone, before the same keys."""
        mask, s, t = self.mask, self.key.shape[2], self.query.shape[2]
        if mask is not None and mask.shape[2] > 1:
            mask = mask.index_select(2, positions)
        elif mask is None and self.causal:
            mask = (torch.arange(s, device=positions.device) <= positions[:, None] + s - t)[
                None, None
            ]
        return dataclasses.replace(
            self, query=self.query.index_select(2, positions), mask=mask, causal=False
        )

    def prefix(self, length: int) -> "Heads":
        """What the first ``length`` tokens of the text are given, when nothing of theirs comes from
        later ones.
        """
        keys = length + self.key.shape[2] - self.query.shape[2]
        mask = None if self.mask is None else self.mask[:, :, :length, :keys]
        query, key, value = (
            self.query[:, :, :length],
            self.key[:, :, :keys],
            self.value[:, :, :keys],
        )
        return dataclasses.replace(self, query=query, key=key, value=value, mask=mask)

    def some_groups(self, start: int, stop: int) -> "Heads":
        """The heads of these groups alone."""
        share = self.count // self.groups
        part = slice(start * share, stop * share)
        mask = self.mask if self.mask is None or self.mask.shape[1] == 1 else self.mask[:, part]
        key, value = self.key[:, start:stop], self.value[:, start:stop]
        return dataclasses.replace(self, query=self.query[:, part], key=key, value=value, mask=mask)

    def queries(self, start: int, stop: int, keys: int) -> "Heads":
        """The queries from ``start`` to ``stop`` alone, before the first ``keys`` keys, where these
        are all that they may read.
        """
        mask = (
            None
            if self.mask is None
            else self.mask[
                :, :, (slice(None) if self.mask.shape[2] == 1 else slice(start, stop)), :keys
            ]
        )
        key, value = self.key[:, :, :keys], self.value[:, :, :keys]
        return dataclasses.replace(
            self, query=self.query[:, :, start:stop], key=key, value=value, mask=mask
        )

    def scored(self, first: int = 0) -> Rows:
        """Scores of all queries against all keys, of which every query may read so
        many first ones.
        """
        t, s = self.query.shape[2], self.key.shape[2]
        grouped = self.query.to(self.wide).reshape(
            self.batch, self.groups, -1, self.query.shape[-1]
        )  # the heads of a group together
        scores = (self.scale * grouped @ self.key.to(self.wide).mT).reshape(
            self.batch, self.count, t, s
        )
        scores = scores if self.cap is None else self.cap * torch.tanh(scores / self.cap)
        allowed, bias = self.allowed, None
        if self.mask is not None and allowed is not None:
            allowed = allowed.expand(-1, -1, t, s)
            bias = torch.where(allowed, self.mask, 0.0).to(self.wide) if self.biased else None
        elif self.causal:
            allowed = torch.ones(t, s, dtype=torch.bool, device=scores.device).tril(s - t)[
                None, None
            ]
        return Rows(
            scores, self.value.to(self.wide), allowed, self.count // self.groups, bias, first
        )


def summed(weights: Tensor, value: Tensor) -> Tensor:
    """``weights @ value``, (n, t, S) and (n, S, o), where S is much the largest: a GPU sums
    stretches of it side by side.
    """
    n, t, s = weights.shape
    parts = min(s // STRETCH, SIDE_BY_SIDE // n) if weights.is_cuda else 1
    if parts < 2:
        return weights @ value
    end = s // parts * parts
    cut = weights[..., :end].unflatten(-1, (parts, -1)).transpose(1, 2).reshape(n * parts, t, -1)
    found: Tensor = (
        (cut @ value[:, :end].reshape(n * parts, end // parts, -1)).unflatten(0, (n, parts)).sum(1)
    )
    return found if end == s else found + weights[..., end:] @ value[:, end:]


def chunk_numbers(heads: Heads) -> int:
    """How many scores are treated at a time."""
    constant, each = CHUNK_NUMBERS.get(heads.key.device.type, CHUNK_NUMBERS["cuda"])
    return constant + each * heads.key.shape[2]


def stacked(layers: Sequence[Heads]) -> Heads:
    """Layers of one shape that share their mask as texts of one batch, in the dtype in which sums
    are taken.
    """
    first = layers[0]
    query, key, value = (
        _wide_cat([getattr(each, name) for each in layers], first.wide)
        for name in ("query", "key", "value")
    )
    return dataclasses.replace(first, query=query, key=key, value=value)


def _wide_cat(parts: list[Tensor], dtype: torch.dtype) -> Tensor:
    """One after the other in another dtype, without a copy of all in their own."""
    return torch.cat(
        parts, out=parts[0].new_empty((sum(map(len, parts)), *parts[0].shape[1:]), dtype=dtype)
    )
