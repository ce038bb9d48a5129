"""Read-outs in place of heads, at every position: mean only, affine from running moments, Gaussian
mixture.
"""

import dataclasses

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.audit.clusters import MOST_COMPONENTS, mixture_read_outs, responsibilities
from largeprompt.audit.heads import Heads
from largeprompt.audit.plan import Kind

CHUNK = 128  # tokens whose prefixes are treated together


def chosen_heads(heads: Heads, indices: list[int]) -> Heads:
    """Only these heads, each with keys and values of its own."""
    group = [index // (heads.count // heads.groups) for index in indices]
    mask = heads.mask if heads.mask is None or heads.mask.shape[1] == 1 else heads.mask[:, indices]
    query, key, value = heads.query[:, indices], heads.key[:, group], heads.value[:, group]
    return dataclasses.replace(heads, query=query, key=key, value=value, mask=mask)


def read_out(heads: Heads, kind: Kind, components: int = 8, sinks: int = 1) -> Tensor:
    """What a read-out gives in place of the heads' outputs.

    Parameters
    ----------
    heads
        Inputs of one attention layer.
    kind
        'mean' for v̄, 'affine' for v̄ + Cov(v, k) u, 'mixture' for the same of each cluster.
    components, sinks
        For 'mixture': how many clusters, beside how many first tokens that are read exactly.

    Returns
    -------
    Tensor
        Shape (batch, heads, T, o).
    """
    validation.instance("heads", heads, Heads, "Heads(query, key, value, mask, scale)")
    components = validation.integer("components", components, maximum=MOST_COMPONENTS)
    sinks = validation.integer("sinks", sinks, minimum=0)
    if validation.choice("kind", kind, ("mean", "affine", "mixture")) == "mixture":
        member = responsibilities(heads, (components,), sinks)[components]
        parts = [mixture_read_outs(rows, [member])[0][0] for _, rows in heads.rows()]
        return torch.nan_to_num(torch.cat(parts, 2))  # padding that sees no key
    moments = (
        _by_scores
        if heads.mask is not None or heads.cap is not None
        else _causal
        if heads.causal
        else _global
    )
    return moments(heads, kind == "affine")


def _wide(heads: Heads) -> tuple[Tensor, Tensor, Tensor]:
    """Queries times the scale, keys and values with their own mean taken off: neither changes a
    covariance.
    """
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
    """The same for every prefix, by running sums over chunks: O(S d²) work, memory of a chunk."""
    query, key, value = _wide(heads)
    offset, ahead = value.mean(2, keepdim=True), key.shape[2] - query.shape[2]
    value = value - offset
    sum_k, sum_v = key[:, :, :ahead].sum(2, keepdim=True), value[:, :, :ahead].sum(2, keepdim=True)
    product = key[:, :, :ahead].mT @ value[:, :, :ahead]
    result: list[Tensor] = []
    for q, k, v in zip(
        *(each.split(CHUNK, 2) for each in (query, key[:, :, ahead:], value[:, :, ahead:])),
        strict=True,
    ):
        number = (
            ahead
            + CHUNK * len(result)
            + torch.arange(1, q.shape[2] + 1, dtype=q.dtype, device=q.device)[:, None]
        )
        mean = (sum_v + v.cumsum(2)) / number
        found = offset + mean
        if affine:
            mean_score = (q * (sum_k + k.cumsum(2))).sum(-1, keepdim=True) / number
            found = found + (q @ product + (q @ k.mT).tril() @ v) / number - mean_score * mean
        result.append(found)
        sum_k, sum_v = sum_k + k.sum(2, keepdim=True), sum_v + v.sum(2, keepdim=True)
        product = product + k.mT @ v
    return torch.cat(result, 2)


def _by_scores(heads: Heads, affine: bool) -> Tensor:
    """Any mask, position biases, and capped scores: from the scores themselves, a few queries at a
    time.
    """
    result = []
    for _, rows in heads.rows():
        number = rows.number()[..., None].clamp_min(1)  # padding that sees no key
        mean = rows.read(rows.everyone()) / number
        if affine:
            mean = mean + rows.read(rows.weighted(rows.centred()[1])) / number
        result.append(mean)
    return torch.cat(result, 2)
