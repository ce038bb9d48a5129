"""Audit a transformer: every head's statistics in one pass over each length, as a labelled dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from largeprompt.audit.adapters.transformers import AuditError, evaluating, watching
from largeprompt.audit.findings import derived
from largeprompt.audit.heads import Heads
from largeprompt.audit.replace import head_count
from largeprompt.audit.statistics import head_statistics
from largeprompt.errors import InvalidArgumentError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

COMPONENTS, SINKS = (1, 2, 4, 8, 16), 1
# of a head's largest output; eager attention takes its softmax in float32 whatever the dtype
PARITY = {torch.float64: 1e-6, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}


def audit_model(
    model: PreTrainedModel,
    inputs: Mapping[str, Tensor],
    *,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    positions: int | Sequence[int] = 32,
    lengths: Sequence[int] | None = None,
    components: Sequence[int] = COMPONENTS,
    sinks: int = SINKS,
    progress: Callable[[str], None] | None = None,
) -> xr.Dataset:
    """Look at every head while the model reads the texts.

    Parameters
    ----------
    inputs
        What the tokenizer gives: ``input_ids`` (texts, T), and ``attention_mask`` where texts are padded. Every text is read by
        itself, without its padding.
    layers, heads
        Which to look at; all of them when left out.
    positions
        Query positions: how many, evenly spaced in every text, or which.
    lengths
        Read the first so many tokens of every text instead: adds a dimension ``length``.
    components
        Sizes of the Gaussian mixtures that are tried; () for none, which is much faster.
    sinks
        First tokens that mixtures read exactly, beside their components.

    Returns
    -------
    xarray.Dataset
        Dimensions (length,) text, layer, head, position; errors relative to the head's output. NaN where a text has no such.

    Raises
    ------
    AuditError
        Where a head's output, recomputed from what was seen, is not the model's own: layer and head are named.
    """
    count, width = head_count(model)
    chosen_layers, chosen = _subset("layers", layers, count), _subset("heads", heads, width)
    ids = inputs["input_ids"]
    if ids.dim() != 2 or ids.shape[1] < 2:
        raise InvalidArgumentError(
            "inputs", f"input_ids of shape {tuple(ids.shape)}", "shape (texts, tokens) with at least two tokens"
        )
    texts = _texts(inputs)
    shortest = min(text["input_ids"].shape[1] for text in texts)
    wanted = None if lengths is None else [int(length) for length in lengths]
    if wanted is not None and (not wanted or any(not 2 <= length <= shortest for length in wanted)):
        raise InvalidArgumentError("lengths", str(wanted), f"from 2 to the {shortest} tokens of the shortest text")
    sizes = tuple(sorted({int(size) for size in components}))
    if any(size < 1 for size in sizes):
        raise InvalidArgumentError("components", str(list(components)), "positive integers")
    parts = []
    for length in [None] if wanted is None else wanted:
        rows = []
        for number, text in enumerate(texts):
            cut = {name: value[:, :length] if value.dim() == 2 else value for name, value in text.items()}
            size = cut["input_ids"].shape[1]
            if progress is not None:
                progress(f"text {number + 1} of {len(texts)}: {size} tokens")
            rows.append(_pass(model, cut, chosen_layers, chosen, _positions(positions, size), sizes, sinks))
        parts.append(_stacked(rows, "text"))
    data = parts[0] if wanted is None else _stacked(parts, xr.Variable("length", wanted))
    data["regime"] = data.regime.fillna(-1).astype(np.int8)
    longest = max(text["input_ids"].shape[1] for text in texts)
    data.attrs |= {"model": type(model).__name__, "tokens": longest, "sinks": sinks, "dtype": str(model.dtype)}
    return data


def _texts(inputs: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """Each text by itself, shape (1, its tokens), its padding taken off on whichever side."""
    ids, mask = inputs["input_ids"], inputs.get("attention_mask")
    present = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
    if present.shape != ids.shape or int(present.sum(1).min()) < 2:
        raise InvalidArgumentError("inputs", "an attention_mask that leaves a text fewer than two tokens", "two tokens at least")
    return [
        {
            name: value[i : i + 1, present[i]] if value.shape == ids.shape else value[i : i + 1]
            for name, value in inputs.items()
            if name != "attention_mask"
        }
        for i in range(len(ids))
    ]


def _stacked(parts: list[xr.Dataset], along: str | xr.Variable) -> xr.Dataset:
    """Parts with different numbers of positions: NaN where one has fewer."""
    return xr.concat(parts, along, combine_attrs="drop_conflicts", join="outer", data_vars="all")


def _subset(name: str, given: Sequence[int] | None, count: int) -> list[int]:
    found = list(range(count)) if given is None else sorted({int(each) for each in given})
    if not found or found[0] < 0 or found[-1] >= count:
        raise InvalidArgumentError(name, str(given), f"numbers from 0 to {count - 1}, the model has {count}")
    return found


def _positions(given: int | Sequence[int], length: int) -> Tensor:
    if isinstance(given, int):
        if given < 1:
            raise InvalidArgumentError("positions", str(given), "at least one")
        return torch.from_numpy(np.unique(np.linspace(length - 1, 0, given, endpoint=given >= length).round().astype(np.int64)))
    found = sorted({int(each) + (length if each < 0 else 0) for each in given})
    if not found or found[0] < 0 or found[-1] >= length:
        raise InvalidArgumentError("positions", str(list(given)), f"numbers from {-length} to {length - 1}")
    return torch.tensor(found)


def audit_heads(
    heads: Heads, *, positions: int | Sequence[int] = 32, components: Sequence[int] = COMPONENTS, sinks: int = SINKS
) -> xr.Dataset:
    """The same for one layer given as bare tensors (query, key, value, mask, scale), whatever model they come from.

    Returns
    -------
    xarray.Dataset
        As :func:`audit_model` gives, with one layer; :func:`summary` makes verdicts of it.

    Examples
    --------
    >>> import torch
    >>> from largeprompt.audit import FINDINGS, Heads, audit_heads, summary
    >>> draw = torch.Generator().manual_seed(0)
    >>> tokens = torch.randn(1, 2, 500, 8, generator=draw)
    >>> heads = Heads(0.2 * tokens, tokens, tokens + 1.0, None, 8**-0.5)
    >>> [FINDINGS[code] for code in summary(audit_heads(heads)).finding.values.ravel()]
    ['moments', 'moments']
    """
    where = _positions(positions, heads.query.shape[2])
    with torch.no_grad():
        found = head_statistics(heads, where.to(heads.query.device), tuple(components), sinks)
    return _labelled({0: {name: value.numpy() for name, value in found.items()}}, [0], list(range(heads.count)), where)


def _labelled(seen: dict[int, dict[str, np.ndarray]], layers: list[int], chosen: list[int], positions: Tensor) -> xr.Dataset:
    dims = ("text", "layer", "head", "position")
    values = {name: (dims, np.stack([seen[layer][name] for layer in layers], 1)) for name in seen[layers[0]]}
    count = len(positions)
    raw = xr.Dataset(values, coords={"layer": layers, "head": chosen, "position": range(count)})
    found = derived(raw)
    found["query"] = (
        ("text", "position"),
        np.broadcast_to(positions.cpu().numpy().astype(float), (raw.sizes["text"], count)).copy(),
    )
    return found


def _pass(
    model: PreTrainedModel,
    inputs: Mapping[str, Tensor],
    layers: list[int],
    chosen: list[int],
    positions: Tensor,
    components: tuple[int, ...],
    sinks: int,
) -> xr.Dataset:
    seen: dict[int, dict[str, np.ndarray]] = {}
    positions = positions.to(model.device)

    def visitor(layer: int, heads: Heads, output: Tensor) -> Tensor | None:
        if layer not in layers:
            return None
        if heads.query.shape[2] != heads.key.shape[2]:
            raise AuditError(
                f"layer {layer}: {heads.query.shape[2]} queries read {heads.key.shape[2]} keys; audit without a cache."
            )
        check_parity(layer, heads, output, positions)
        found = head_statistics(heads, positions, components, sinks)
        seen[layer] = {name: value[:, chosen].numpy() for name, value in found.items()}
        return None

    with torch.no_grad(), evaluating(model), watching(model, visitor):
        model(**{**inputs, "use_cache": False} if getattr(model.config, "use_cache", False) else dict(inputs))
    missing = [layer for layer in layers if layer not in seen]
    if missing:
        raise AuditError(f"layers {missing} never called the attention interface: they have another kind of layer there.")
    return _labelled(seen, layers, chosen, positions)


def check_parity(layer: int, heads: Heads, output: Tensor, positions: Tensor) -> None:
    """Refuse to go on where the outputs recomputed from what was seen are not the model's."""
    tolerance = PARITY.get(output.dtype, 1e-4)
    rounding = torch.finfo(output.dtype).eps * heads.value.abs().amax((0, 2, 3)).repeat_interleave(heads.count // heads.groups)
    for part, rows in heads.rows(positions):
        own = output[:, :, positions[part]].to(rows.scores.dtype)
        if not bool(torch.isfinite(own).all()):
            raise AuditError(
                f"layer {layer}: the model's own attention gives NaN or infinity for this text; try another dtype, or sdpa."
            )
        wrong = (rows.read(rows.weights()[0]) - own).abs().amax((0, 2, 3))  # of each head
        size = 1 + rows.only_allowed(rows.scores).abs().amax((0, 2, 3))  # scores are as exact as their size allows
        allowed = tolerance * own.abs().amax((0, 2, 3)) + 4 * size * rounding.to(own.dtype)
        if not bool((wrong <= allowed).all()):
            head = int(torch.nan_to_num(wrong / allowed, nan=torch.inf).argmax())
            raise AuditError(
                f"layer {layer}, head {head}: its output, recomputed from what the model passed to its attention, is off by "
                f"{float(wrong[head]):.2g} (allowed {float(allowed[head]):.2g}). The model does something else to its scores, so "
                "that nothing is reported."
            )
