"""Heads of a :class:`torch.nn.MultiheadAttention`."""

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.audit.adapters.transformers import AuditError, evaluating
from largeprompt.audit.heads import Heads, unchecked
from largeprompt.errors import InvalidArgumentError


def module_heads(
    module: torch.nn.MultiheadAttention,
    tokens: Tensor,
    *,
    attn_mask: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    causal: bool = False,
) -> Heads:
    """Inputs of the heads of a :class:`torch.nn.MultiheadAttention` that attends from ``tokens`` to
    themselves.

    Parameters
    ----------
    module
        Self-attention with one width for queries, keys and values.
    tokens
        As the module takes them: (batch, T, width) where it is ``batch_first``, else (T, batch,
        width).
    attn_mask, key_padding_mask
        As the module takes them: True, or minus infinity, where a key may not be read.
    causal
        Every token reads those before it and itself only; without masks.

    Returns
    -------
    Heads
        For :func:`audit_heads`.

    Raises
    ------
    AuditError
        Where the outputs recomputed from these inputs are not the module's own.
    """
    if not isinstance(module, torch.nn.MultiheadAttention):
        raise InvalidArgumentError("module", type(module).__name__, "a torch.nn.MultiheadAttention")
    if module.in_proj_weight is None or module.bias_k is not None or module.add_zero_attn:
        allowed = "one width for queries, keys and values, no added keys"
        raise InvalidArgumentError(
            "module", "a MultiheadAttention with kdim, vdim, bias_kv or zero_attn", allowed
        )
    causal = validation.flag("causal", causal)
    tokens = validation.tensor("tokens", tokens, like=next(module.parameters()))
    for name, mask in (("attn_mask", attn_mask), ("key_padding_mask", key_padding_mask)):
        if mask is not None and (
            not isinstance(mask, Tensor) or mask.layout != torch.strided or mask.is_meta
        ):
            raise InvalidArgumentError(name, validation.text(mask), "a dense tensor, or None")
    if attn_mask is not None and attn_mask.dim() not in (2, 3):
        raise InvalidArgumentError(
            "attn_mask", f"shape {tuple(attn_mask.shape)}", "shape (T, T) or (batch * heads, T, T)"
        )
    if tokens.dim() != 3 or 0 in tokens.shape or tokens.shape[-1] != module.embed_dim:
        order = "batch, T" if module.batch_first else "T, batch"
        raise InvalidArgumentError(
            "tokens", f"shape {tuple(tokens.shape)}", f"shape ({order}, {module.embed_dim})"
        )
    if causal and (attn_mask is not None or key_padding_mask is not None):
        raise InvalidArgumentError(
            "causal", "True beside a mask", "either; put both into attn_mask"
        )
    batched = tokens if module.batch_first else tokens.transpose(0, 1)
    projected = torch.nn.functional.linear(batched, module.in_proj_weight, module.in_proj_bias)
    query, key, value = (
        part.unflatten(-1, (module.num_heads, -1)).transpose(1, 2)
        for part in projected.chunk(3, dim=-1)
    )
    added = []  # to the scores, shapes (batch or 1, heads or 1, T or 1, T)
    if attn_mask is not None:
        shape = (-1, module.num_heads) if attn_mask.dim() == 3 else (1, 1)
        added.append(_numbers(attn_mask, tokens.dtype).reshape(*shape, *attn_mask.shape[-2:]))
    if key_padding_mask is not None:
        added.append(_numbers(key_padding_mask, tokens.dtype)[:, None, None, :])
    mask = sum(added[1:], added[0]).clamp_min(torch.finfo(tokens.dtype).min) if added else None
    scale = module.head_dim**-0.5
    heads = unchecked(query=query, key=key, value=value, mask=mask, scale=scale, causal=causal)
    count = query.shape[2]
    ahead = (
        torch.ones(count, count, dtype=torch.bool, device=tokens.device).triu(1)
        if causal
        else attn_mask
    )
    with evaluating(module):
        own, _ = module(
            tokens,
            tokens,
            tokens,
            attn_mask=ahead,
            key_padding_mask=key_padding_mask,
            need_weights=False,
        )
        read = torch.cat([rows.read(rows.weights()) for _, rows in heads.rows()], 2)
        again = module.out_proj(read.to(tokens.dtype).transpose(1, 2).flatten(2))
    own = own if module.batch_first else own.transpose(0, 1)
    wrong, size = (float(torch.nan_to_num(each).abs().max()) for each in (again - own, own))
    if wrong > (1e-4 if tokens.dtype == torch.float32 else 1e-8) * max(size, 1e-30):
        raise AuditError(
            f"module: its output, recomputed from its heads, is off by {wrong / size:.2g} of its "
            "largest entry."
        )
    return heads


def _numbers(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask as numbers to be added to the scores."""
    return (
        torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -torch.inf)
        if mask.dtype == torch.bool
        else mask.to(dtype)
    )
