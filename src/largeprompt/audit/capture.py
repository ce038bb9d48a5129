"""Look into the attention of a model while it runs: one function registered with transformers sees every layer's inputs."""

from __future__ import annotations

import contextlib
import importlib
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
    found = [
        (name, module)
        for name, module in model.named_modules()
        if getattr(module, "layer_idx", None) is not None and (hasattr(module, "is_causal") or hasattr(module, "scaling"))
    ]
    if not found:
        raise AuditError(f"{type(model).__name__} has no attention module with a layer number: nothing to audit.")
    return found


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
    functions = transformers_module("transformers.modeling_utils").ALL_ATTENTION_FUNCTIONS
    masks = transformers_module("transformers.masking_utils").ALL_MASK_ATTENTION_FUNCTIONS
    name = f"largeprompt_{uuid.uuid4().hex[:8]}"

    def forward(
        module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **given: Any
    ) -> tuple[Tensor, Tensor | None]:
        layer = getattr(module, "layer_idx", None)
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
        changed = visitor(int(layer or 0), heads, output.transpose(1, 2))
        return (output if changed is None else changed.transpose(1, 2).to(output.dtype).contiguous()), weights

    functions.register(name, forward)
    masks.register(name, masks[before])
    try:
        model.set_attn_implementation(name)
        yield
    finally:
        model.set_attn_implementation(before)
        for registry in (functions, masks):
            registry._global_mapping.pop(name, None)


def module_heads(module: torch.nn.MultiheadAttention, tokens: Tensor, *, causal: bool = False) -> Heads:
    """Inputs of the heads of a :class:`torch.nn.MultiheadAttention` that attends from ``tokens`` to themselves.

    Parameters
    ----------
    tokens
        Shape (batch, T, width); transposed by the module itself where it is not ``batch_first``.
    """
    if not isinstance(module, torch.nn.MultiheadAttention):
        raise InvalidArgumentError("module", type(module).__name__, "a torch.nn.MultiheadAttention")
    if tokens.dim() != 3 or tokens.shape[-1] != module.embed_dim:
        raise InvalidArgumentError("tokens", f"shape {tuple(tokens.shape)}", f"shape (batch, T, {module.embed_dim})")
    if module.in_proj_weight is None or module.bias_k is not None or module.add_zero_attn:
        allowed = "one width for queries, keys and values, no added keys"
        raise InvalidArgumentError("module", "a MultiheadAttention with kdim, vdim, bias_kv or zero_attn", allowed)
    projected = torch.nn.functional.linear(tokens, module.in_proj_weight, module.in_proj_bias)
    query, key, value = (part.unflatten(-1, (module.num_heads, -1)).transpose(1, 2) for part in projected.chunk(3, dim=-1))
    return Heads(query, key, value, None, module.head_dim**-0.5, causal)
