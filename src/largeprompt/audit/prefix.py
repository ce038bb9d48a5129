"""What is linear in the scores of a query: from sums over a prefix of the keys, where it may read
all of them.
"""

import dataclasses
from typing import NamedTuple

import torch
from torch import Tensor

from largeprompt.audit.heads import Heads, Rows


class FirstOrder(NamedTuple):
    """Means of scores s and values v over the keys that a query may read, by their own weights."""

    mean_score: Tensor  # κ(s), shape (batch, heads, t)
    centred: Tensor  # s - κ(s), 0 where a key may not be read: (batch, heads, t, S)
    tilt: Tensor  # κ(v, s), shape (batch, heads, t, o)
    # of v and ‖v‖², shape (batch, heads, t or 1, o + 1), in the precision of ``doubled``
    mean: Tensor


def first_order(rows: Rows, doubled: Tensor) -> FirstOrder:
    """Key by key; ``doubled`` are the values and their squared lengths side by side."""
    number = rows.number()[..., None]
    mean_score, centred = rows.centred()
    return FirstOrder(
        mean_score,
        centred,
        rows.read(rows.weighted(centred)) / number,
        rows.total(doubled) / number,
    )


@dataclasses.dataclass(frozen=True)
class Prefix:
    """Sums over the first ``length`` keys k and their values, Σ (k, 1) (v, ‖v‖², 1)ᵀ: shape (batch,
    groups, d + 1, o + 2).

    The score s = c q · k of a query is linear in k, so that Σ s = c q · Σ k and Σ s v = c q · Σ k
    vᵀ over the keys that all of some queries may read take no scores: only those of the other keys
    are summed one by one.
    """

    length: int
    sums: Tensor

    def extended(self, length: int, key: Tensor, doubled: Tensor) -> "Prefix":
        """The sums over another number of first keys, of keys (batch, groups, S, d)."""
        known = self if length >= self.length else Prefix(0, torch.zeros_like(self.sums))
        more = slice(known.length, length)
        left, right = (
            torch.nn.functional.pad(each[:, :, more].to(doubled.dtype), (0, 1), value=1.0)
            for each in (key, doubled)
        )
        return Prefix(length, known.sums + left.mT @ right)

    def first_order(self, heads: Heads, rows: Rows, doubled: Tensor) -> FirstOrder:
        """:func:`first_order` of rows without biases that are the scores of ``heads``, uncapped,
        and may all read the prefix.
        """
        b, h, t, _ = rows.scores.shape
        query = (heads.scale * heads.query.to(doubled.dtype)).reshape(
            b, heads.groups, rows.share * t, -1
        )
        # Σ s (v, ‖v‖², 1) over the prefix
        scored = (query @ self.sums[:, :, :-1]).reshape(b, h, t, -1)
        own = self.sums[:, :, -1:].repeat_interleave(rows.share, 1)
        rest = rows.beyond(self.length)
        number = rows.number()[..., None].to(doubled.dtype)
        mean = (own[..., :-1] + rest.total(doubled[:, :, self.length :])) / number
        mean_score = (
            scored[..., -1:] + rest.forbid(rest.scores).sum(-1, keepdim=True, dtype=doubled.dtype)
        ) / number
        centred = rows.forbid(rows.scores.sub_(mean_score.to(rows.scores.dtype)))
        tilt = (
            scored[..., :-2] - mean_score * own[..., :-2] + rest.read(centred[..., self.length :])
        )
        return FirstOrder(
            mean_score.squeeze(-1).to(centred.dtype),
            centred,
            (tilt / number).to(centred.dtype),
            mean,
        )
