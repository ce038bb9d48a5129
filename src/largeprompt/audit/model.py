"""Audit a transformer: every head's statistics in one pass over each length, as a labelled dataset."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from largeprompt.audit.adapters.texts import most_tokens
from largeprompt.audit.adapters.transformers import (
    AuditError,
    Model,
    attending_layers,
    evaluating,
    head_count,
    silent_layers,
    tokens_read,
    watching,
)
from largeprompt.audit.findings import WIDTHS, derived
from largeprompt.audit.heads import Heads
from largeprompt.audit.kinds import NAMES
from largeprompt.audit.statistics import head_statistics
from largeprompt.audit.subsets import subset_statistics
from largeprompt.display.labels import label
from largeprompt.errors import InvalidArgumentError
from largeprompt.runs.study import Progress, quiet

COMPONENTS, SINKS = (1, 2, 4, 8, 16), 1
# of a head's largest output; eager attention takes its softmax in float32 whatever the dtype
PARITY = {torch.float64: 1e-6, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}


def audit_model(
    model: Model,
    inputs: Mapping[str, Tensor],
    *,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    positions: int | Sequence[int] = 32,
    lengths: Sequence[int] | None = None,
    components: Sequence[int] = COMPONENTS,
    sinks: int = SINKS,
    progress: Progress = quiet,
) -> xr.Dataset:
    """Look at every head while the model reads the texts.

    Parameters
    ----------
    model
        A model of transformers.
    inputs
        What the tokenizer gives: ``input_ids`` (texts, T), and ``attention_mask`` where texts are padded. Every text is read by
        itself, without its padding. Or what else the model reads, such as ``pixel_values`` of images, each read by itself.
    layers, heads
        Which to look at, by their true numbers; all that attend when left out.
    positions
        Query positions: how many, evenly spaced in every text, or which.
    lengths
        Read the first so many tokens of every text instead: adds a dimension ``length``.
    components
        Sizes of the Gaussian mixtures that are tried; () for none, which is much faster.
    sinks
        First tokens that mixtures read exactly, beside their components.
    progress
        Called with a line about each text.

    Returns
    -------
    xarray.Dataset
        Dimensions (length,) text, layer, head, position; errors relative to the head's output. NaN where a text has no such.

    Raises
    ------
    AuditError
        Where a head's output, recomputed from what was seen, is not the model's own: layer and head are named.
    """
    reach, silent = attending_layers(model), silent_layers(model)
    layers = reach if layers is None else _chosen("layers", layers, reach[-1] + 1)
    if not set(layers) <= set(reach):
        raise InvalidArgumentError("layers", str(layers), f"layers that attend: {reach}")
    heads = _chosen("heads", heads, head_count(model))
    texts = _texts(inputs)
    counts = [tokens_read(model, text) for text in texts]
    shortest, longest = min(counts), max(counts)
    wanted = None if lengths is None else [int(length) for length in lengths]
    if wanted is not None and "input_ids" not in inputs:
        raise InvalidArgumentError("lengths", str(wanted), "None where the inputs are not tokens of a text")
    if wanted is not None and (not wanted or any(not 2 <= length <= shortest for length in wanted)):
        raise InvalidArgumentError("lengths", str(wanted), f"from 2 to the {shortest} tokens of the shortest text")
    sizes = tuple(sorted({int(size) for size in components}))
    if any(size < 1 for size in sizes):
        raise InvalidArgumentError("components", str(list(components)), "positive integers")
    options: dict[str, Any] = {"combine_attrs": "drop_conflicts", "join": "outer", "data_vars": "all"}  # NaN for fewer positions
    parts = []
    for length in [None] if wanted is None else wanted:
        rows = []
        for number, text in enumerate(texts, 1):
            cut = {name: value[:, :length] if value.dim() == 2 else value for name, value in text.items()}
            size = length or counts[number - 1]
            progress(f"text {number} of {len(texts)}: {size} tokens")
            where = _positions(positions, size).to(model.device)
            rows.append(_labelled(_seen(model, cut, layers, where, sizes, sinks), heads, where))
        parts.append(xr.concat(rows, "text", **options))
    data = parts[0] if wanted is None else xr.concat(parts, xr.Variable("length", wanted), **options)
    data["regime"] = data.regime.fillna(-1).astype(np.int8)
    data.attrs |= {"model": type(model).__name__, "tokens": longest, "sinks": sinks, "dtype": str(model.dtype)}
    data.attrs |= {"silent_layers": silent} if silent else {}
    data.attrs |= {"positions_allowed": allowed} if (allowed := most_tokens(model.config)) else {}
    return label(data, NAMES)


def _texts(inputs: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """Each text by itself, shape (1, its tokens), its padding taken off on whichever side."""
    if "input_ids" not in inputs:  # images, sounds: each by itself, as it is
        if len({len(value) for value in inputs.values()}) != 1:
            allowed = "input_ids, or what else the model reads (pixel_values, input_features, ...), one first dimension for all"
            raise InvalidArgumentError("inputs", str({name: tuple(value.shape) for name, value in inputs.items()}), allowed)
        return [{name: value[i : i + 1] for name, value in inputs.items()} for i in range(len(next(iter(inputs.values()))))]
    ids, mask = inputs["input_ids"], inputs.get("attention_mask")
    if ids.dim() != 2 or ids.shape[1] < 2:
        allowed = "shape (texts, tokens) with at least two tokens"
        raise InvalidArgumentError("inputs", f"input_ids of shape {tuple(ids.shape)}", allowed)
    present = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
    if present.shape != ids.shape or int(present.sum(1).min()) < 2:
        raise InvalidArgumentError("inputs", "an attention_mask that leaves a text fewer than two tokens", "two tokens at least")
    given = {name: value for name, value in inputs.items() if name != "attention_mask"}
    return [
        {name: value[i : i + 1, kept] if value.shape == ids.shape else value[i : i + 1] for name, value in given.items()}
        for i, kept in enumerate(present)
    ]


def _chosen(name: str, given: Sequence[int] | None, count: int, least: int = 0) -> list[int]:
    """Numbers below ``count``, ascending, each once; all of them when None is given. Those below zero count from the end."""
    found = sorted({each % count if least <= each < 0 else each for each in map(int, range(count) if given is None else given)})
    if not found or found[0] < 0 or found[-1] >= count:
        raise InvalidArgumentError(name, str(given), f"numbers from {least} to {count - 1}")
    return found


def _positions(given: int | Sequence[int], length: int) -> Tensor:
    if not isinstance(given, int):
        return torch.tensor(_chosen("positions", given, length, -length))
    if given < 1:
        raise InvalidArgumentError("positions", str(given), "at least one")
    return torch.from_numpy(np.unique(np.linspace(length - 1, 0, given, endpoint=given >= length).round().astype(np.int64)))


def audit_heads(
    heads: Heads, *, positions: int | Sequence[int] = 32, components: Sequence[int] = COMPONENTS, sinks: int = SINKS
) -> xr.Dataset:
    """What :func:`audit_model` gives, for one layer of bare tensors from any model; :func:`summary` makes verdicts of it.

    Parameters
    ----------
    heads
        Queries, keys and values of the layer.
    positions, components, sinks
        As for :func:`audit_model`.

    Returns
    -------
    xarray.Dataset
        Dimensions text, layer (0 alone), head, position.

    Examples
    --------
    >>> import torch
    >>> from largeprompt.audit import FINDINGS, Heads, audit_heads, summary
    >>> draw = torch.Generator().manual_seed(0)
    >>> tokens = torch.randn(1, 2, 500, 8, generator=draw)
    >>> heads = Heads(0.5 * tokens, tokens, tokens + 0.2, None, 8**-0.5)
    >>> [FINDINGS[code] for code in summary(audit_heads(heads)).finding.values.ravel()]
    ['moments', 'moments']
    """
    where = _positions(positions, heads.query.shape[2])
    with torch.no_grad():
        where = where.to(heads.query.device)
        found = _statistics(heads, where, tuple(components), sinks)
    return _labelled({0: found}, list(range(heads.count)), where)


def _statistics(heads: Heads, positions: Tensor, components: tuple[int, ...], sinks: int) -> dict[str, Tensor]:
    """All that is measured of the heads of a layer, each of shape (batch, heads, positions)."""
    found = head_statistics(heads, positions, components, sinks) | subset_statistics(heads, positions)
    widths = zip(WIDTHS, (heads.key.shape[-1], heads.value.shape[-1], heads.count // heads.groups), strict=True)
    return found | {name: torch.full_like(found["tokens"], float(width)) for name, width in widths}


def _labelled(seen: Mapping[int, Mapping[str, Tensor]], chosen: list[int], positions: Tensor) -> xr.Dataset:
    """Statistics of the chosen heads by layer as one dataset, with what is derived from them."""
    layers, dims = sorted(seen), ("text", "layer", "head", "position")
    values = {name: (dims, torch.stack([seen[i][name] for i in layers], 1)[:, :, chosen].numpy()) for name in seen[layers[0]]}
    found = derived(xr.Dataset(values, coords={"layer": layers, "head": chosen, "position": range(len(positions))}))
    found["query"] = (("text", "position"), np.tile(positions.cpu().numpy().astype(float), (found.sizes["text"], 1)))
    return label(found, NAMES)


def _seen(
    model: Model, inputs: Mapping[str, Tensor], layers: list[int], positions: Tensor, components: tuple[int, ...], sinks: int
) -> dict[int, dict[str, Tensor]]:
    """Statistics of the wanted layers in one pass of the model."""
    seen: dict[int, dict[str, Tensor]] = {}

    def visitor(layer: int, heads: Heads, output: Tensor) -> None:
        if layer in layers:
            queries, keys = heads.query.shape[2], heads.key.shape[2] - heads.atoms
            if heads.batch > 1:
                raise AuditError(
                    f"layer {layer}: attends within {heads.batch} windows, each a prompt of its own; nothing is reported."
                )
            if queries != keys:
                raise AuditError(f"layer {layer}: {queries} queries read {keys} keys; audit without a cache.")
            check_parity(layer, heads, output, positions)
            seen[layer] = _statistics(heads, positions, components, sinks)

    options = {"use_cache": False} if "use_cache" in inspect.signature(model.forward).parameters else {}
    with evaluating(model), watching(model, visitor):
        model(**{**inputs, **options})
    missing = [layer for layer in layers if layer not in seen]
    if missing:
        raise AuditError(f"layers {missing} never called the attention interface: they have another kind of layer there.")
    return seen


def check_parity(layer: int, heads: Heads, output: Tensor, positions: Tensor) -> None:
    """Refuse to go on where the outputs recomputed from what was seen are not the model's."""
    tolerance = PARITY.get(output.dtype, 1e-4)
    rounding = torch.finfo(output.dtype).eps * heads.value.abs().amax((0, 2, 3)).repeat_interleave(heads.count // heads.groups)
    for piece, rows in heads.rows(positions):
        own = output[:, :, piece].to(rows.scores.dtype)
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
