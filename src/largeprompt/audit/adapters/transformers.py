"""Look into the attention of a model while it runs: one function registered with transformers sees every layer's inputs."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from largeprompt.audit.heads import Heads
from largeprompt.errors import InvalidArgumentError, LargePromptError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CAUSAL = ("ForCausalLM", "LMHeadModel")  # ends of the names of models whose logits are of the next token
UNSUPPORTED = ("softcap", "s_aux", "position_bias")  # arguments that change the scores in ways that Heads does not know


class Visitor(Protocol):
    """What looks on: gets a layer's number, its inputs and the outputs (batch, heads, T, o), and may give other outputs."""

    def __call__(self, layer: int, heads: Heads, output: Tensor) -> Tensor | None:
        """None leaves the output as it is."""


class AuditError(LargePromptError, ValueError):
    """The model cannot be audited: why, and what to do instead."""


def transformers_module(name: str = "transformers") -> Any:
    """The module, or a sentence that says which extra is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise AuditError(
            f"{name.partition('.')[0]} is not installed; the audit needs it: pip install 'largeprompt[models]'"
        ) from error


def attention_layers(model: PreTrainedModel) -> list[tuple[str, torch.nn.Module]]:
    """Self-attention modules in the order of their layers, or a sentence that says why the model cannot be looked into."""
    transformers = transformers_module()
    if not isinstance(model, transformers.PreTrainedModel):
        raise InvalidArgumentError(
            "model",
            type(model).__name__,
            "a PreTrainedModel of transformers",
            "For other modules pass (query, key, value) to audit.Heads, or use audit.module_heads for MultiheadAttention.",
        )
    if getattr(model.config, "is_encoder_decoder", False):
        raise AuditError(
            f"{type(model).__name__} is an encoder-decoder: its cross-attention reads two prompts. "
            "Audit its encoder alone (model.get_encoder()) or a decoder-only model."
        )
    if not model._can_set_attn_implementation():
        raise AuditError(
            f"{type(model).__name__} does not go through the attention interface of transformers: its heads cannot be seen. "
            "Use an architecture that does (most of version 5 do), or pass (query, key, value) to largeprompt.audit.Heads."
        )
    found = [(name, module) for name, module in model.named_modules() if hasattr(module, "is_causal") or hasattr(module, "scaling")]
    numbered = [(name, module) for name, module in found if getattr(module, "layer_idx", None) is not None]
    if not found:
        raise AuditError(f"{type(model).__name__} has no attention module that goes through the interface: nothing to audit.")
    return numbered or found


def layer_count(model: PreTrainedModel) -> int:
    """How many layers attend; where modules have no number of their own (some share one), as many as the config says."""
    numbers = {getattr(module, "layer_idx", None) for _, module in attention_layers(model)}
    return len(numbers) if None not in numbers else int(model.config.get_text_config().num_hidden_layers)


@contextlib.contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Without dropout inside the block; as before afterwards."""
    training = model.training
    model.train(False)
    try:
        yield
    finally:
        model.train(training)


def _own_function(model: PreTrainedModel, module: torch.nn.Module, implementation: str) -> Callable[..., Any]:
    """The attention function that the module would have used."""
    functions = transformers_module("transformers.modeling_utils").ALL_ATTENTION_FUNCTIONS
    eager = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    function: Callable[..., Any] | None = functions.get_interface(implementation, eager)
    if function is None:
        raise AuditError(
            f"{type(model).__name__} has no attention function for {implementation!r}: load it with attn_implementation='sdpa'."
        )
    return function


@contextlib.contextmanager
def watching(model: PreTrainedModel, visitor: Visitor) -> Iterator[None]:
    """Let ``visitor`` see every attention layer of ``model`` inside the block.

    The model goes on with its own attention function. Ours is registered with transformers only while the block runs, and the
    model is as before afterwards, also after an error. Outputs are the model's own, bit for bit, unless the visitor
    gives others.
    """
    attention_layers(model)
    before = model.config._attn_implementation or "eager"
    if "flash" in before or "flex" in before:
        raise AuditError(f"The model runs {before!r}, whose masks cannot be read. Load it with attn_implementation='sdpa'.")
    calls = itertools.count()  # of layers that have no number of their own, in one pass

    def begin(*_: Any) -> None:
        nonlocal calls
        calls = itertools.count()

    functions = transformers_module("transformers.modeling_utils").ALL_ATTENTION_FUNCTIONS
    masks = transformers_module("transformers.masking_utils").ALL_MASK_ATTENTION_FUNCTIONS
    name = f"largeprompt_{uuid.uuid4().hex[:8]}"

    def forward(
        module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **given: Any
    ) -> tuple[Tensor, Tensor | None]:
        number = getattr(module, "layer_idx", None)
        layer = next(calls) if number is None else int(number)
        for argument in UNSUPPORTED:
            if given.get(argument) is not None:
                raise AuditError(
                    f"layer {layer}: the model passes {argument!r} to its attention, which the audit does not understand."
                )
        output, weights = _own_function(model, module, before)(module, query, key, value, attention_mask, **given)
        scale = given.get("scaling")
        causal = given.get("is_causal")
        causal = getattr(module, "is_causal", True) if causal is None else causal
        heads = Heads(
            query,
            key,
            value,
            attention_mask,
            float(query.shape[-1] ** -0.5 if scale is None else scale),
            bool(causal) and attention_mask is None and query.shape[2] > 1,
        )
        changed = visitor(layer, heads, output.transpose(1, 2))
        return (output if changed is None else changed.transpose(1, 2).to(output.dtype).contiguous()), weights

    functions.register(name, forward)
    masks.register(name, masks[before])
    hook = model.register_forward_pre_hook(begin)
    try:
        model.set_attn_implementation(name)
        yield
    finally:
        hook.remove()
        model.set_attn_implementation(before)
        for registry in (functions, masks):
            registry._global_mapping.pop(name, None)


def module_heads(
    module: torch.nn.MultiheadAttention,
    tokens: Tensor,
    *,
    attn_mask: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    causal: bool = False,
) -> Heads:
    """Inputs of the heads of a :class:`torch.nn.MultiheadAttention` that attends from ``tokens`` to themselves.

    Parameters
    ----------
    tokens
        As the module takes them: (batch, T, width) where it is ``batch_first``, else (T, batch, width).
    attn_mask, key_padding_mask
        As the module takes them: True, or minus infinity, where a key may not be read.
    causal
        Every token reads those before it and itself only; without masks.

    Raises
    ------
    AuditError
        Where the outputs recomputed from these inputs are not the module's own.
    """
    if not isinstance(module, torch.nn.MultiheadAttention):
        raise InvalidArgumentError("module", type(module).__name__, "a torch.nn.MultiheadAttention")
    if tokens.dim() != 3 or tokens.shape[-1] != module.embed_dim:
        order = "batch, T" if module.batch_first else "T, batch"
        raise InvalidArgumentError("tokens", f"shape {tuple(tokens.shape)}", f"shape ({order}, {module.embed_dim})")
    if module.in_proj_weight is None or module.bias_k is not None or module.add_zero_attn:
        allowed = "one width for queries, keys and values, no added keys"
        raise InvalidArgumentError("module", "a MultiheadAttention with kdim, vdim, bias_kv or zero_attn", allowed)
    if causal and (attn_mask is not None or key_padding_mask is not None):
        raise InvalidArgumentError("causal", "True beside a mask", "either; put both into attn_mask")
    batched = tokens if module.batch_first else tokens.transpose(0, 1)
    projected = torch.nn.functional.linear(batched, module.in_proj_weight, module.in_proj_bias)
    query, key, value = (part.unflatten(-1, (module.num_heads, -1)).transpose(1, 2) for part in projected.chunk(3, dim=-1))
    heads = Heads(query, key, value, _module_mask(module, batched, attn_mask, key_padding_mask), module.head_dim**-0.5, causal)
    _module_parity(module, tokens, heads, attn_mask, key_padding_mask)
    return heads


def _module_mask(module: torch.nn.MultiheadAttention, tokens: Tensor, attn: Tensor | None, padding: Tensor | None) -> Tensor | None:
    """Both masks as one to be added to the scores, shape (batch or 1, heads or 1, T or 1, T)."""
    found: Tensor | None = None
    for mask in (attn, padding):
        if mask is None:
            continue
        added = torch.zeros(mask.shape, dtype=tokens.dtype, device=tokens.device)
        added = added.masked_fill(mask, -torch.inf) if mask.dtype == torch.bool else mask.to(tokens.dtype)
        if mask is padding:
            added = added[:, None, None, :]
        elif mask.dim() == 3:
            added = added.unflatten(0, (tokens.shape[0], module.num_heads))
        else:
            added = added[None, None]
        found = added if found is None else found + added
    return None if found is None else found.clamp_min(torch.finfo(tokens.dtype).min)


def _module_parity(
    module: torch.nn.MultiheadAttention, tokens: Tensor, heads: Heads, attn: Tensor | None, padding: Tensor | None
) -> None:
    """Compare the module's own output with that of the heads."""
    count = tokens.shape[1 if module.batch_first else 0]
    ahead = torch.ones(count, count, dtype=torch.bool, device=tokens.device).triu(1) if heads.causal else attn
    with torch.no_grad(), evaluating(module):
        own, _ = module(tokens, tokens, tokens, attn_mask=ahead, key_padding_mask=padding, need_weights=False)
        places = torch.arange(count, device=tokens.device)
        read = torch.cat([rows.read(rows.weights()[0]) for _, rows in heads.rows(places)], 2)
        again = module.out_proj(read.to(tokens.dtype).transpose(1, 2).flatten(2))
    own = own if module.batch_first else own.transpose(0, 1)
    wrong, size = float(torch.nan_to_num(again - own).abs().max()), float(torch.nan_to_num(own).abs().max())
    if wrong > (1e-4 if tokens.dtype == torch.float32 else 1e-8) * max(size, 1e-30):
        raise AuditError(f"module: its output, recomputed from its heads, is off by {wrong / size:.2g} of its largest entry.")
