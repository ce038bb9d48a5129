"""Heads of a :class:`torch.nn.MultiheadAttention`."""

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.audit.adapters.transformers import AuditError, evaluating
from largeprompt.audit.heads import Heads, unchecked
from largeprompt.errors import InvalidArgumentError


def module_heads(
    module: torch.nn.MultiheadAttention, tokens: Tensor, *, causal: bool = False
) -> Heads:
    """Return the heads of a :class:`torch.nn.MultiheadAttention` that reads ``tokens``.

    Parameters
    ----------
    module
        Self-attention with one width for queries, keys and values.
    tokens
        As the module takes them: (batch, T, width) where it is ``batch_first``, else (T, batch,
        width).
    causal
        Every token reads those before it and itself only. For another mask, pass the projected
        queries, keys and values to :class:`Heads`.

    Returns
    -------
    Heads
        For :func:`audit_heads`.

    Raises
    ------
    AuditError
        Where the outputs recomputed from these inputs are not the module's own.
    """
    validation.instance(
        "module", module, torch.nn.MultiheadAttention, "a torch.nn.MultiheadAttention"
    )
    if module.in_proj_weight is None or module.bias_k is not None or module.add_zero_attn:
        allowed = "one width for queries, keys and values, no added keys"
        raise InvalidArgumentError("module", "kdim, vdim, bias_kv or zero_attn", allowed)
    causal = validation.flag("causal", causal)
    tokens = validation.tensor("tokens", tokens, like=next(module.parameters()))
    if tokens.dim() != 3 or 0 in tokens.shape or tokens.shape[-1] != module.embed_dim:
        order = "batch, T" if module.batch_first else "T, batch"
        given, allowed = f"shape {tuple(tokens.shape)}", f"shape ({order}, {module.embed_dim})"
        raise InvalidArgumentError("tokens", given, allowed)
    batched = tokens if module.batch_first else tokens.transpose(0, 1)
    projected = torch.nn.functional.linear(batched, module.in_proj_weight, module.in_proj_bias)
    query, key, value = (
        part.unflatten(-1, (module.num_heads, -1)).transpose(1, 2)
        for part in projected.chunk(3, dim=-1)
    )
    scale = module.head_dim**-0.5
    heads = unchecked(query=query, key=key, value=value, scale=scale, causal=causal)
    count = query.shape[2]
    ahead = torch.ones(count, count, dtype=torch.bool, device=tokens.device).triu(1)
    with evaluating(module):
        own, _ = module(
            tokens, tokens, tokens, attn_mask=ahead if causal else None, need_weights=False
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
