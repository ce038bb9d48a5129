"""Look into the attention of a model while it runs."""

import contextlib
import functools
import importlib
import inspect
import itertools
import sys
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.audit.heads import Heads, unchecked
from largeprompt.errors import InvalidArgumentError, LargePromptError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Model: TypeAlias = "PreTrainedModel"
# gets a layer's number, its inputs and outputs (batch, heads, T, o); may return other outputs
Visitor: TypeAlias = Callable[[int, Heads, Tensor], Tensor | None]
# ends of the names of models whose logits are of the next token
CAUSAL = ("ForCausalLM", "LMHeadModel")
INTERFACE = "ALL_ATTENTION_FUNCTIONS"  # what a module asks for its attention function


class AuditError(LargePromptError, ValueError):
    """The model cannot be audited: why, and what to do instead."""


class AuditWarning(UserWarning):
    """The audit goes on, but not with exactly what was given to it."""


def needed(module: str, extra: str) -> Any:
    """Return a module of an extra, or say how it is installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise AuditError(
            f"{package} is not installed: pip install 'largeprompt[{extra}]'"
        ) from error


def transformers_module(name: str = "transformers") -> Any:
    """Return a module of the extra ``models``."""
    return needed(name, "models")


@functools.cache
def _attends(kind: type[torch.nn.Module]) -> bool:
    """Whether modules of this class ask transformers for their attention function."""
    code = getattr(inspect.unwrap(kind.forward), "__code__", None)
    return code is not None and INTERFACE in code.co_names


def attention_modules(model: Model) -> dict[torch.nn.Module, list[int]]:
    """Return self-attention modules, each with the numbers of its layers.

    Numbers are those of the model's own list of layers, also in hybrids, where only some layers
    attend. There are none where layers share a module that stands in no list: calls are counted
    then. Where only some modules have a number of their own (the language model beside a vision
    tower), the others are left out.
    """
    kind = type(model).__name__
    if not isinstance(model, transformers_module().PreTrainedModel):
        remedy = "Pass (query, key, value) to audit.Heads, or use audit.module_heads."
        raise InvalidArgumentError("model", kind, "a PreTrainedModel of transformers", remedy)
    found: dict[torch.nn.Module, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if _attends(type(module)):  # type: ignore[arg-type]
            found.setdefault(module, []).append(name)
    if not found:
        raise AuditError(_unseen(model))
    numbered = {each: names for each, names in found.items() if _own_number(each) is not None}
    found = numbered or found
    names = [name for each in found.values() for name in each]
    stacks = sorted({_place(name)[0] for name in names})
    if len(stacks) > 1:
        raise AuditError(_several(model, stacks))
    if not numbered and len(names) < _size(model, "num_hidden_layers"):
        return {module: [] for module in found}
    places = [_place(name)[1] for name in names]
    if None not in places and len(set(places)) == len(places):
        return {module: [_place(name)[1] or 0 for name in each] for module, each in found.items()}
    numbers = [_own_number(module) if numbered else i for i, module in enumerate(found)]
    return {module: [int(number)] for module, number in zip(found, numbers, strict=True)}


def _own_number(module: torch.nn.Module) -> Any:
    return getattr(module, "layer_idx", None)


def _place(name: str) -> tuple[str, int | None]:
    """The list of layers that a module stands in, and its place there."""
    parts = name.split(".")
    stack = list(itertools.takewhile(lambda part: not part.isdigit(), parts))
    return ".".join(stack), int(parts[len(stack)]) if len(stack) < len(parts) else None


def _unseen(model: Model) -> str:
    kind = type(model).__name__
    if not any("attention" in type(module).__name__.lower() for module in model.modules()):
        return f"{kind} has no softmax attention: there is nothing to audit."
    return (
        f"{kind} computes its attention itself, outside the attention interface of transformers "
        f"{transformers_module().__version__}: its heads cannot be seen. Use another architecture, "
        "or pass (query, key, value) to largeprompt.audit.Heads, with position biases as its mask."
    )


def _several(model: Model, stacks: list[str]) -> str:
    kind = type(model).__name__
    if getattr(model.config, "is_encoder_decoder", False):
        return (
            f"{kind} is an encoder-decoder: its cross-attention reads two prompts. Audit its "
            "encoder alone (model.get_encoder()) or a decoder-only model."
        )
    whole = transformers_module().PreTrainedModel
    models = [name for name, part in model.named_modules() if name and isinstance(part, whole)]
    parts = [name for name in models if sum(stack.startswith(f"{name}.") for stack in stacks) == 1]
    return (
        f"{kind} has {len(stacks)} stacks of layers ({', '.join(stacks)}), which read different "
        f"things. Audit one of its parts{': model.' * bool(parts)}{' or model.'.join(parts)}."
    )


def _size(model: Model, name: str) -> int:
    """A number of the model's config; 0 where it is missing or differs between layers."""
    value = getattr(model.config.get_text_config(), name, None)
    return value if isinstance(value, int) else 0


def attending_layers(model: Model) -> list[int]:
    """Return the true numbers of the layers that attend, ascending."""
    numbers = sorted({number for each in attention_modules(model).values() for number in each})
    return numbers or list(range(_size(model, "num_hidden_layers")))


def silent_layers(model: Model) -> list[int]:
    """Return layers that do not attend: convolutions, recurrences, linear attention."""
    return sorted(set(range(_size(model, "num_hidden_layers"))) - set(attending_layers(model)))


def head_count(model: Model) -> int:
    """Return the number of heads in each layer that attends."""
    count = _size(model, "num_attention_heads")
    if not count:
        kind = type(model).__name__
        raise AuditError(
            f"The layers of {kind} have different numbers of heads; the audit needs one for all."
        )
    return count


def _readable(model: Model, given: str) -> str:
    """The attention function to run: the model's own, where its masks and scores can be read."""
    # sdpa has no soft caps
    capped = getattr(model.config.get_text_config(), "attn_logit_softcapping", None) is not None
    if given in ("eager", "sdpa") and not (capped and given == "sdpa"):
        return given
    if not any(word in given for word in ("flash", "flex", "paged", "/", "sdpa")):
        return given  # somebody's own
    instead = "sdpa" if model._supports_sdpa and not capped else "eager"
    told = (
        f"The model runs {given!r}, which cannot be looked into; while it is audited it runs "
        f"{instead!r}."
    )
    warnings.warn(told, AuditWarning, 3)
    return instead


@contextlib.contextmanager
def watching(model: Model, visitor: Visitor) -> Iterator[None]:
    """Let ``visitor`` see every attention layer of ``model`` inside the block.

    The model goes on with its own attention function (sdpa or eager in place of flash and flex
    attention, with a warning). Ours is registered with transformers only while the block runs, and
    the model is as before afterwards, also after an error. Outputs are the model's own, bit for
    bit, unless the visitor gives others.

    Parameters
    ----------
    model
        A model of transformers.
    visitor
        ``visitor(layer, heads, output)`` with the outputs (batch, heads, T, o); what it returns
        replaces them, None leaves them.
    """
    check_model(model)
    numbers = attention_modules(model)
    run = _readable(model, model.config._attn_implementation or "eager")
    turns: dict[torch.nn.Module, Iterator[int]] = {}  # the numbers of a module's next calls

    def begin(*_: Any) -> None:
        counted = itertools.count()  # by modules that layers share
        turns.update(
            {module: itertools.cycle(n) if n else counted for module, n in numbers.items()}
        )

    functions = transformers_module("transformers.modeling_utils").ALL_ATTENTION_FUNCTIONS
    masks = transformers_module("transformers.masking_utils").ALL_MASK_ATTENTION_FUNCTIONS
    ours = f"largeprompt_{uuid.uuid4().hex[:8]}"

    def forward(
        module: torch.nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        **given: Any,
    ) -> tuple[Tensor, Tensor | None]:
        eager = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
        own = functions.get(run) or eager
        if own is None:
            raise AuditError(
                f"There is no {run!r} attention: load with attn_implementation='sdpa'."
            )
        mask = attention_mask
        if mask is not None and mask.dim() == 4:
            mask = mask[..., : key.shape[2]]  # some hybrids make room for one key more
        output, weights = own(module, query, key, value, mask, **given)
        if module not in turns:
            return output, weights
        heads = _heads(module, query, key, value, mask, given)
        changed = visitor(next(turns[module]), heads, output.transpose(1, 2))
        if changed is not None:
            output = changed.transpose(1, 2).to(output.dtype).contiguous()
        return output, weights

    functions.register(ours, forward)
    masks.register(ours, masks[run])
    hook = model.register_forward_pre_hook(begin)
    before = _implementations(model)
    try:
        model.set_attn_implementation(ours)
        yield
    finally:
        hook.remove()
        for config, implementation in before:
            config._attn_implementation_internal = implementation
        for registry in (functions, masks):
            registry._global_mapping.pop(ours, None)


def _implementations(model: Model) -> list[tuple[Any, Any]]:
    """Every config of the model and of its parts, with the attention function that it names."""
    whole = transformers_module().PreTrainedModel
    configs = [module.config for module in model.modules() if isinstance(module, whole)]
    for config in configs:
        parts = [getattr(config, name, None) for name in config.sub_configs]
        configs += [part for part in parts if part is not None]
    return [(config, config._attn_implementation_internal) for config in configs]


def _heads(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    given: dict[str, Any],
) -> Heads:
    """What the module passed to its attention function."""
    names = ("scaling", "is_causal", "position_bias", "s_aux", "softcap")
    scale, causal, bias, sink, cap = (given.get(name) for name in names)
    scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
    causal = getattr(module, "is_causal", True) if causal is None else causal
    causal = bool(causal) and mask is None and query.shape[2] > 1
    if bias is not None:
        mask, causal = _biased(bias, mask, causal, query.shape[2], key.shape[2]), False
    heads = unchecked(
        query=query, key=key, value=value, mask=mask, scale=scale, causal=causal, cap=cap
    )
    return heads if sink is None else with_atom(heads, sink)


def _biased(bias: Tensor, mask: Tensor | None, causal: bool, t: int, s: int) -> Tensor:
    """Offsets that depend on positions, and forbidden keys, as one mask of numbers."""
    if mask is None and causal:
        mask = torch.ones(t, s, dtype=torch.bool, device=bias.device).tril(s - t)
    least = torch.finfo(bias.dtype).min
    if mask is None:
        return bias
    if mask.dtype == torch.bool:
        return torch.where(mask, bias, least)
    return (bias + mask).clamp_min(least)


def with_atom(heads: Heads, score: Tensor) -> Heads:
    """Return the heads with a first key of value zero and, for head h, the score ``score[h]``.

    This is what a learned sink does to softmax attention, Σ_l e^{s_l} v_l / (e^{b} + Σ_l e^{s_l}).
    The scores stay products of queries and keys: one more coordinate is b/scale in the queries, 1
    in the new key and 0 in all others.
    """
    if heads.cap is not None:
        raise AuditError("The audit cannot read both learned sinks and a soft cap.")
    pad = torch.nn.functional.pad
    column = (score.to(heads.wide) / heads.scale).reshape(1, -1, 1, 1)
    column = column.expand(*heads.query.shape[:3], 1)
    key = pad(heads.key, (0, 1, 1, 0))
    key[:, :, 0, -1] = 1
    mask = heads.mask
    if mask is not None:
        whole = mask.expand(-1, -1, -1, heads.key.shape[2])
        mask = pad(whole, (1, 0), value=mask.dtype == torch.bool)
    query = torch.cat([heads.query.to(heads.wide), column], -1)
    value = pad(heads.value, (0, 0, 1, 0))
    return heads.like(query=query, key=key, value=value, mask=mask, atoms=heads.atoms + 1)


def tokens_read(model: Model, inputs: Mapping[str, Tensor]) -> int:
    """Return how many tokens the attention sees; patches and frames are counted in a pass."""
    if "input_ids" in inputs:
        return inputs["input_ids"].shape[1]
    counts: set[int] = set()

    def count(layer: int, heads: Heads, output: Tensor) -> None:
        counts.add(heads.query.shape[2])

    with evaluating(model), watching(model, count):
        model(**inputs)
    if len(counts) != 1:
        kind = type(model).__name__
        raise AuditError(f"The layers of {kind} read different numbers of tokens: {counts}.")
    return counts.pop()


def check_model(model: Any, inputs: Any = None) -> None:
    """Refuse what is no model of transformers, and inputs that are no tensors by name."""
    if not isinstance(model, torch.nn.Module) or not hasattr(model, "config"):
        allowed, remedy = "a PreTrainedModel of transformers", "Use load_model(folder)."
        raise InvalidArgumentError("model", validation.text(model), allowed, remedy)
    if inputs is None:
        return
    named = isinstance(inputs, Mapping) and len(inputs) > 0
    if not named or not all(isinstance(each, Tensor) and each.ndim for each in inputs.values()):
        allowed = "tensors by name, as the tokenizer gave them: {'input_ids': ...}"
        remedy = "Use read_texts(folder, files)."
        raise InvalidArgumentError("inputs", validation.text(inputs), allowed, remedy)
    if "input_ids" not in inputs:
        return
    ids = inputs["input_ids"]
    known = getattr(cast(Any, model).get_input_embeddings(), "num_embeddings", None)
    if known is not None and ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < known:
        raise AuditError(
            "inputs: model and tokenizer do not belong together: token "
            f"{int(ids.max()):,}, and embeddings of {known:,}."
        )


@contextlib.contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Run without dropout and gradients inside the block; as before afterwards."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True
