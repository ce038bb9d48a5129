"""Read-outs in place of heads, at every position: mean only, affine, Gaussian mixture."""

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.audit.clusters import MOST_COMPONENTS, mixture_read_out, responsibilities
from largeprompt.audit.heads import Heads
from largeprompt.audit.plan import Kind

CHUNK = 128  # tokens whose prefixes are treated together, of the order of a head's width


def chosen_heads(heads: Heads, indices: list[int]) -> Heads:
    """Only these heads, each with keys and values of its own."""
    group = [index // (heads.count // heads.groups) for index in indices]
    mask = heads.mask if heads.mask is None or heads.mask.shape[1] == 1 else heads.mask[:, indices]
    query, key, value = heads.query[:, indices], heads.key[:, group], heads.value[:, group]
    return heads.like(query=query, key=key, value=value, mask=mask)


def read_out(heads: Heads, kind: Kind, components: int = 8, sinks: int = 1) -> Tensor:
    """Return what a read-out gives in place of the heads' outputs, shape (batch, heads, T, o).

    Parameters
    ----------
    heads
        Inputs of one attention layer.
    kind
        'mean' for v̄, 'affine' for v̄ + Cov(v, k) u, 'mixture' for the same of each cluster.
    components, sinks
        For 'mixture': how many clusters, beside how many first tokens that are read exactly.
    """
    validation.instance("heads", heads, Heads, "Heads(query, key, value)")
    components = validation.integer("components", components, maximum=MOST_COMPONENTS)
    sinks = validation.integer("sinks", sinks, minimum=0)
    if validation.choice("kind", kind, ("mean", "affine", "mixture")) == "mixture":
        member = responsibilities(heads, (components,), sinks)[components]
        parts = [mixture_read_out(rows, member) for _, rows in heads.rows()]
        return torch.nan_to_num(torch.cat(parts, 2))  # padding that sees no key
    if heads.mask is not None or heads.cap is not None:
        return _by_scores(heads, kind == "affine")
    return (_causal if heads.causal else _global)(heads, kind == "affine")


def _wide(heads: Heads) -> tuple[Tensor, Tensor, Tensor]:
    """Queries times the scale, keys less their mean (which no covariance sees), and values."""
    share = heads.count // heads.groups
    key, value = (
        each.to(heads.wide).repeat_interleave(share, 1) for each in (heads.key, heads.value)
    )
    return heads.scale * heads.query.to(heads.wide), key - key.mean(2, keepdim=True), value


def _global(heads: Heads, affine: bool) -> Tensor:
    """v̄ + Cov(v, k) u from one pass over the tokens: O(S d²)."""
    query, key, value = _wide(heads)
    mean = value.mean(2, keepdim=True)
    if not affine:
        return mean.expand(*query.shape[:3], -1)
    return mean + query @ (key.mT @ (value - mean) / key.shape[2])


def _causal(heads: Heads, affine: bool) -> Tensor:
    """v̄ + Cov(v, k) u of every prefix, by running sums over chunks: O(S d²), memory of a chunk."""
    query, key, value = _wide(heads)
    offset, ahead = value.mean(2, keepdim=True), key.shape[2] - query.shape[2]
    value = value - offset
    sum_k, sum_v = key[:, :, :ahead].sum(2, keepdim=True), value[:, :, :ahead].sum(2, keepdim=True)
    product = key[:, :, :ahead].mT @ value[:, :, :ahead]
    result, number = list[Tensor](), ahead
    chunks = (each.split(CHUNK, 2) for each in (query, key[:, :, ahead:], value[:, :, ahead:]))
    for q, k, v in zip(*chunks, strict=True):
        keys = number + torch.arange(1, q.shape[2] + 1, dtype=q.dtype, device=q.device)[:, None]
        mean = (sum_v + v.cumsum(2)) / keys
        found = offset + mean
        if affine:
            mean_score = (q * (sum_k + k.cumsum(2))).sum(-1, keepdim=True) / keys
            found = found + (q @ product + (q @ k.mT).tril() @ v) / keys - mean_score * mean
        result.append(found)
        sum_k, sum_v = sum_k + k.sum(2, keepdim=True), sum_v + v.sum(2, keepdim=True)
        product, number = product + k.mT @ v, number + q.shape[2]
    return torch.cat(result, 2)


def _by_scores(heads: Heads, affine: bool) -> Tensor:
    """Any mask, position biases, and capped scores: from the scores, a few queries at a time."""
    result = []
    for _, rows in heads.rows():
        number = rows.number()[..., None].clamp_min(1)  # padding that sees no key
        mean = rows.read(rows.everyone()) / number
        if affine:
            mean = mean + rows.read(rows.weighted(rows.centered()[1])) / number
        result.append(mean)
    return torch.cat(result, 2)
