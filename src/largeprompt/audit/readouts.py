"""Read-outs in place of heads, at every position: mean only, affine from running moments, Gaussian mixture."""

from __future__ import annotations

import dataclasses
from typing import Literal

import torch
from torch import Tensor

from largeprompt.audit.clusters import mixture_read_out, responsibilities
from largeprompt.audit.heads import Heads
from largeprompt.errors import InvalidArgumentError

Kind = Literal["mean", "affine", "mixture"]
CHUNK = 128  # tokens whose prefixes are treated together


def chosen_heads(heads: Heads, indices: list[int]) -> Heads:
    """Only these heads, each with keys and values of its own."""
    group = [index // (heads.count // heads.groups) for index in indices]
    mask = heads.mask if heads.mask is None or heads.mask.shape[1] == 1 else heads.mask[:, indices]
    return dataclasses.replace(
        heads, query=heads.query[:, indices], key=heads.key[:, group], value=heads.value[:, group], mask=mask
    )


def read_out(heads: Heads, kind: Kind, components: int = 8, sinks: int = 1) -> Tensor:
    """What the read-out gives in place of the heads' outputs, shape (batch, heads, T, o)."""
    if kind == "mixture":
        member = responsibilities(heads, (components,), sinks)[components]
        parts = [mixture_read_out(rows, member)[0] for _, rows in heads.rows(_everywhere(heads))]
        return torch.nan_to_num(torch.cat(parts, 2))  # padding that sees no key
    if kind not in ("mean", "affine"):
        raise InvalidArgumentError("kind", repr(kind), "'mean', 'affine' or 'mixture'")
    if heads.mask is None:
        moments = _causal if heads.causal else _global
        return moments(heads, kind == "affine")
    return _by_scores(heads, kind == "affine")


def _everywhere(heads: Heads) -> Tensor:
    return torch.arange(heads.query.shape[2], device=heads.query.device)


def _wide(heads: Heads) -> tuple[Tensor, Tensor, Tensor]:
    """Queries times the scale, keys and values with their own mean taken off: neither changes a covariance."""
    wide = torch.float64 if heads.query.dtype == torch.float64 else torch.float32
    share = heads.count // heads.groups
    key, value = (each.to(wide).repeat_interleave(share, 1) for each in (heads.key, heads.value))
    return heads.scale * heads.query.to(wide), key - key.mean(2, keepdim=True), value


def _global(heads: Heads, affine: bool) -> Tensor:
    """v̄ + Cov(v, k) u from one pass over the tokens: O(S d²)."""
    query, key, value = _wide(heads)
    mean = value.mean(2, keepdim=True)
    if not affine:
        return mean.expand(*query.shape[:3], -1)
    covariance = key.mT @ (value - mean) / key.shape[2]  # (batch, heads, d, o)
    return mean + query @ covariance


def _causal(heads: Heads, affine: bool) -> Tensor:
    """The same for every prefix, by running sums over chunks: O(S d²) work, memory of a chunk."""
    query, key, value = _wide(heads)
    offset = value.mean(2, keepdim=True)
    value = value - offset
    t = query.shape[2]
    ahead = key.shape[2] - t
    sum_k, sum_v = key[:, :, :ahead].sum(2, keepdim=True), value[:, :, :ahead].sum(2, keepdim=True)
    product = key[:, :, :ahead].mT @ value[:, :, :ahead]
    result = []
    for begin in range(0, t, CHUNK):
        end = min(begin + CHUNK, t)
        q, k, v = query[:, :, begin:end], key[:, :, ahead + begin : ahead + end], value[:, :, ahead + begin : ahead + end]
        number = torch.arange(ahead + begin + 1, ahead + end + 1, dtype=q.dtype, device=q.device)[:, None]
        mean = (sum_v + v.cumsum(2)) / number
        if affine:
            mean_score = (q * (sum_k + k.cumsum(2))).sum(-1, keepdim=True) / number
            joint = (q @ product + (q @ k.mT).tril() @ v) / number
            result.append(offset + mean + joint - mean_score * mean)
        else:
            result.append(offset + mean)
        sum_k, sum_v = sum_k + k.sum(2, keepdim=True), sum_v + v.sum(2, keepdim=True)
        product = product + k.mT @ v
    return torch.cat(result, 2)


def _by_scores(heads: Heads, affine: bool) -> Tensor:
    """Any mask: from the scores themselves, a few queries at a time."""
    result = []
    for _, rows in heads.rows(_everywhere(heads)):
        number = rows.number()[..., None]
        allowed = rows.only_allowed(torch.ones_like(rows.scores))
        mean = rows.read(allowed) / number.clamp_min(1)
        if affine:
            centred = rows.only_allowed(rows.scores - rows.only_allowed(rows.scores).sum(-1, keepdim=True) / number.clamp_min(1))
            mean = mean + rows.read(centred) / number.clamp_min(1)
        result.append(mean)
    return torch.cat(result, 2)
