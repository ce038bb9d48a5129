"""Look into the attention of a model while it runs: one function registered with transformers sees every layer's inputs."""

import contextlib
import importlib
import itertools
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from largeprompt.audit.heads import Heads
from largeprompt.errors import InvalidArgumentError, LargePromptError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Model: TypeAlias = "PreTrainedModel"
# gets a layer's number, its inputs and the outputs (batch, heads, T, o), and may give other outputs; None leaves them as they are
Visitor: TypeAlias = Callable[[int, Heads, Tensor], Tensor | None]
CAUSAL = ("ForCausalLM", "LMHeadModel")  # ends of the names of models whose logits are of the next token
UNSUPPORTED = ("softcap", "s_aux", "position_bias")  # arguments that change the scores in ways that Heads does not know


class AuditError(LargePromptError, ValueError):
    """The model cannot be audited: why, and what to do instead."""


def transformers_module(name: str = "transformers") -> Any:
    """The module, or a sentence that says which extra is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise AuditError(f"{package} is not installed; the audit needs it: pip install 'largeprompt[models]'") from error


def attention_layers(model: Model) -> list[torch.nn.Module]:
    """Self-attention modules in the order of their layers, or a sentence that says why the model cannot be looked into."""
    kind = type(model).__name__
    if not isinstance(model, transformers_module().PreTrainedModel):
        remedy = "For other modules pass (query, key, value) to audit.Heads, or use audit.module_heads for MultiheadAttention."
        raise InvalidArgumentError("model", kind, "a PreTrainedModel of transformers", remedy)
    if getattr(model.config, "is_encoder_decoder", False):
        raise AuditError(
            f"{kind} is an encoder-decoder: its cross-attention reads two prompts. "
            "Audit its encoder alone (model.get_encoder()) or a decoder-only model."
        )
    if not model._can_set_attn_implementation():
        raise AuditError(
            f"{kind} does not go through the attention interface of transformers: its heads cannot be seen. "
            "Use an architecture that does (most of version 5 do), or pass (query, key, value) to largeprompt.audit.Heads."
        )
    found = [module for module in model.modules() if hasattr(module, "is_causal") or hasattr(module, "scaling")]
    if not found:
        raise AuditError(f"{kind} has no attention module that goes through the interface: nothing to audit.")
    return [module for module in found if getattr(module, "layer_idx", None) is not None] or found


def head_count(model: Model) -> tuple[int, int]:
    """Layers that attend, and heads in each; where modules have no number of their own (some share one), the config's layers."""
    numbers = {getattr(module, "layer_idx", None) for module in attention_layers(model)}
    config = model.config.get_text_config()
    return len(numbers) if None not in numbers else int(config.num_hidden_layers), int(config.num_attention_heads)


@contextlib.contextmanager
def watching(model: Model, visitor: Visitor) -> Iterator[None]:
    """Let ``visitor`` see every attention layer of ``model`` inside the block.

    The model goes on with its own attention function. Ours is registered with transformers only while the block runs, and the
    model is as before afterwards, also after an error. Outputs are the model's own, bit for bit, unless the visitor
    gives others.

    Parameters
    ----------
    model
        A model of transformers that does not run flash or flex attention.
    visitor
        ``visitor(layer, heads, output)`` with the outputs (batch, heads, T, o); what it returns replaces them, None leaves them.
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
    ours = f"largeprompt_{uuid.uuid4().hex[:8]}"

    def forward(
        module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **given: Any
    ) -> tuple[Tensor, Tensor | None]:
        number = getattr(module, "layer_idx", None)
        layer = next(calls) if number is None else int(number)
        for name in UNSUPPORTED:
            if given.get(name) is not None:
                raise AuditError(f"layer {layer}: the model passes {name!r} to its attention, which the audit does not understand.")
        own = functions.get_interface(before, getattr(sys.modules[type(module).__module__], "eager_attention_forward", None))
        if own is None:
            kind = type(model).__name__
            raise AuditError(f"{kind} has no attention function for {before!r}: load it with attn_implementation='sdpa'.")
        output, weights = own(module, query, key, value, attention_mask, **given)
        scale, causal = given.get("scaling"), given.get("is_causal")
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        causal = getattr(module, "is_causal", True) if causal is None else causal
        causal = bool(causal) and attention_mask is None and query.shape[2] > 1
        changed = visitor(layer, Heads(query, key, value, attention_mask, float(scale), causal), output.transpose(1, 2))
        return (output if changed is None else changed.transpose(1, 2).to(output.dtype).contiguous()), weights

    functions.register(ours, forward)
    masks.register(ours, masks[before])
    hook = model.register_forward_pre_hook(begin)
    try:
        model.set_attn_implementation(ours)
        yield
    finally:
        hook.remove()
        model.set_attn_implementation(before)
        for registry in (functions, masks):
            registry._global_mapping.pop(ours, None)


@contextlib.contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Without dropout and gradients inside the block; as before afterwards."""
    training = model.training
    model.train(False)
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)
