"""Audit a transformer: every head's statistics in one pass over each length, as a labelled dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from largeprompt.audit.capture import AuditError, watching
from largeprompt.audit.findings import derived
from largeprompt.audit.heads import Heads
from largeprompt.audit.replace import head_count
from largeprompt.audit.statistics import head_statistics
from largeprompt.errors import InvalidArgumentError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# of the largest output; eager attention takes its softmax in float32 whatever the dtype
PARITY = {torch.float64: 1e-6, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}


def audit_model(
    model: PreTrainedModel,
    inputs: Mapping[str, Tensor],
    *,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    positions: int | Sequence[int] = 64,
    lengths: Sequence[int] | None = None,
    components: Sequence[int] = (2, 4, 8, 16),
    sinks: int = 0,
    progress: Callable[[str], None] | None = None,
) -> xr.Dataset:
    """Look at every head while the model reads the texts.

    Parameters
    ----------
    inputs
        What the tokenizer gives: ``input_ids`` (texts, T), and ``attention_mask`` where texts are padded.
    layers, heads
        Which to look at; all of them when left out.
    positions
        Query positions: how many, evenly spaced, or which.
    lengths
        Also (or instead) read the first so many tokens only: adds a dimension ``length``.
    components
        Sizes of the Gaussian mixtures that are tried; () for none, which is much faster.
    sinks
        First tokens that mixtures read exactly.

    Returns
    -------
    xarray.Dataset
        Dimensions (length,) text, layer, head, position; errors relative to the head's output. NaN where a query is padding.

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
    longest = ids.shape[1]
    wanted = [longest] if lengths is None else [int(length) for length in lengths]
    if any(not 2 <= length <= longest for length in wanted):
        raise InvalidArgumentError("lengths", str(wanted), f"from 2 to the {longest} tokens of the text")
    sizes = tuple(sorted({int(size) for size in components}))
    if any(size < 1 for size in sizes):
        raise InvalidArgumentError("components", str(list(components)), "positive integers")
    parts = []
    for length in wanted:
        if progress is not None:
            progress(f"reading {length} tokens")
        cut = {name: value[:, :length] if value.dim() == 2 else value for name, value in inputs.items()}
        parts.append(_pass(model, cut, chosen_layers, chosen, _positions(positions, length), sizes, sinks))
    data = parts[0] if lengths is None else xr.concat(parts, xr.Variable("length", wanted), combine_attrs="drop")
    data.attrs |= {"model": type(model).__name__, "tokens": longest, "sinks": sinks, "dtype": str(model.dtype)}
    return data


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
    present = inputs.get("attention_mask")
    positions = positions.to(model.device)

    def visitor(layer: int, heads: Heads, output: Tensor) -> Tensor | None:
        if layer not in layers:
            return None
        if heads.query.shape[2] != heads.key.shape[2]:
            raise AuditError(
                f"layer {layer}: {heads.query.shape[2]} queries read {heads.key.shape[2]} keys; audit without a cache."
            )
        _parity(layer, heads, output, positions, present)
        found = head_statistics(heads, positions, components, sinks)
        seen[layer] = {name: value[:, chosen].cpu().numpy() for name, value in found.items()}
        return None

    training = model.training
    model.train(False)
    try:
        with torch.no_grad(), watching(model, visitor):
            model(**{**inputs, "use_cache": False} if getattr(model.config, "use_cache", False) else dict(inputs))
    finally:
        model.train(training)
    missing = [layer for layer in layers if layer not in seen]
    if missing:
        raise AuditError(f"layers {missing} never called the attention interface: they have another kind of layer there.")
    dims = ("text", "layer", "head", "position")
    values = {name: (dims, np.stack([seen[layer][name] for layer in layers], 1)) for name in seen[layers[0]]}
    raw = xr.Dataset(values, coords={"layer": layers, "head": chosen, "query": ("position", positions.cpu().numpy())})
    if present is not None:
        raw = raw.where(xr.DataArray(present[:, positions].bool().cpu().numpy(), dims=("text", "position")))
    return derived(raw)


def _parity(layer: int, heads: Heads, output: Tensor, positions: Tensor, present: Tensor | None) -> None:
    """Refuse to go on where the outputs recomputed from what was seen are not the model's."""
    tolerance = PARITY.get(output.dtype, 1e-4)
    for part, rows in heads.rows(positions):
        own = output[:, :, positions[part]].to(rows.scores.dtype)
        wrong = (rows.read(rows.weights()[0]) - own).abs().amax(-1)
        size = own.abs().amax(-1)
        if present is not None:
            padding = ~present[:, None, positions[part]].bool()
            wrong, size = wrong.masked_fill(padding, 0.0), size.masked_fill(padding, 0.0)
        if not bool(torch.isfinite(size).all()):
            raise AuditError(
                f"layer {layer}: the model's own attention gives NaN or infinity for this text; try another dtype, or sdpa."
            )
        size = size.amax().clamp_min(1e-30)
        if not bool((wrong <= tolerance * size).all()):
            _, head, _ = np.unravel_index(int(torch.nan_to_num(wrong, nan=torch.inf).argmax()), tuple(wrong.shape))
            raise AuditError(
                f"layer {layer}, head {head}: its output, recomputed from what the model passed to its attention, is off by "
                f"{float(wrong.max() / size):.2g} of the largest output (allowed {tolerance:g}). The model does something else "
                "to its scores, so that nothing is reported."
            )
