"""Audit a transformer: statistics of every head while the model reads."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from largeprompt import validation
from largeprompt.audit.adapters.transformers import (
    Model,
    attending_layers,
    check_model,
    evaluating,
    head_count,
    silent_layers,
    tokens_read,
    watching,
)
from largeprompt.audit.clusters import checked_sizes
from largeprompt.audit.collect import Collector, widths
from largeprompt.audit.findings import derived_numbers
from largeprompt.audit.heads import Heads
from largeprompt.audit.kinds import described
from largeprompt.audit.statistics import head_statistics
from largeprompt.errors import InvalidArgumentError
from largeprompt.runs.study import Progress, quiet

# mixtures that are tried, and first tokens that they read exactly, unless others are asked for
COMPONENTS, SINKS = (1, 2, 4, 8, 16), 1
DIMENSIONS = ("length", "text", "layer", "head", "position")
Statistics = dict[str, NDArray[np.float64]]  # by name, (layers, heads, positions)


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
    """Return statistics of every head while the model reads the texts.

    Parameters
    ----------
    model
        A model of transformers.
    inputs
        What the tokenizer gives: ``input_ids`` (texts, T), and ``attention_mask`` where texts are
        padded. Every text is read by itself, without its padding. Or what else the model reads,
        such as ``pixel_values`` of images, each read by itself.
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
        Dimensions (length,) text, layer, head, position; errors relative to the head's output. NaN
        where a text has no such. :func:`summary` and :func:`table` make verdicts of it.

    Raises
    ------
    AuditError
        Where a head's output, recomputed from what was seen, is not the model's own: layer and head
        are named.
    """
    check_model(model)
    reach, silent = attending_layers(model), silent_layers(model)
    check_model(model, inputs)
    layers = reach if layers is None else _chosen("layers", layers, reach[-1] + 1)
    if not set(layers) <= set(reach):
        raise InvalidArgumentError("layers", str(layers), f"layers that attend: {reach}")
    heads = _chosen("heads", heads, head_count(model))
    sizes, sinks = checked_sizes(components), validation.integer("sinks", sinks, minimum=0)
    texts = _texts(inputs)
    counts = [tokens_read(model, text) for text in texts]
    wanted = None if lengths is None else _lengths(lengths, inputs, min(counts))
    found: list[list[Statistics]] = []
    places = [[_positions(positions, length) for length in wanted or [count]] for count in counts]
    for number, (text, count) in enumerate(zip(texts, counts, strict=True), 1):
        found.append([])
        for length, place in zip(wanted or [count], places[number - 1], strict=True):
            progress(f"text {number} of {len(texts)}: {length} tokens")
            collector = Collector(layers, place, sizes, sinks)
            found[-1].append(_seen(model, text, length, collector))
    data = _labeled(found, sorted(layers), heads, places, wanted)
    data.attrs |= {"model": type(model).__name__, "tokens": max(counts), "sinks": sinks}
    data.attrs |= {"dtype": str(model.dtype), "attending_layers": reach}
    data.attrs |= {"silent_layers": silent} if silent else {}
    return described(data)


def _seen(
    model: Model, text: Mapping[str, Tensor], length: int, collector: Collector
) -> Statistics:
    """Statistics of one pass over the first tokens of a text; sounds and images are not cut."""
    cut = "input_ids" in text
    given = {n: x[:, :length] if cut and x.dim() == 2 else x for n, x in text.items()}
    known = inspect.signature(model.forward).parameters
    options = {"use_cache": False, "logits_to_keep": 1}  # where the model knows them
    options = {name: x for name, x in options.items() if name in known and name not in given}
    with evaluating(model), watching(model, collector):
        model(**given, **options)
    return collector.finish()


def _lengths(given: Sequence[int], inputs: Mapping[str, Tensor], shortest: int) -> list[int]:
    each = validation.listed("lengths", given, "a sequence of lengths")
    found = [int(validation.length("lengths", length)) for length in each]
    if "input_ids" not in inputs:
        allowed = "None where the inputs are not tokens of a text"
        raise InvalidArgumentError("lengths", str(found), allowed)
    if not found or min(found) < 2 or max(found) > shortest:
        allowed = f"from 2 to the {shortest} tokens of the shortest text"
        raise InvalidArgumentError("lengths", str(found), allowed)
    return found


def _texts(inputs: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """Each text by itself, shape (1, its tokens), its padding taken off on whichever side."""
    if "input_ids" not in inputs:  # images, sounds: each by itself, as it is
        if len({len(value) for value in inputs.values()}) != 1:
            shapes = {name: tuple(value.shape) for name, value in inputs.items()}
            allowed = "input_ids, or what else the model reads, one first dimension for all"
            raise InvalidArgumentError("inputs", str(shapes), allowed)
        count = len(next(iter(inputs.values())))
        return [{name: x[i : i + 1] for name, x in inputs.items()} for i in range(count)]
    ids, mask = inputs["input_ids"], inputs.get("attention_mask")
    if ids.dim() != 2 or ids.shape[1] < 2:
        allowed = "shape (texts, tokens) with at least two tokens"
        raise InvalidArgumentError("inputs", f"input_ids of shape {tuple(ids.shape)}", allowed)
    present = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
    if present.shape != ids.shape or int(present.sum(1).min()) < 2:
        short = "an attention_mask that leaves a text fewer than two tokens"
        raise InvalidArgumentError("inputs", short, "two tokens at least")
    given = {name: value for name, value in inputs.items() if name != "attention_mask"}

    def one(x: Tensor, i: int) -> Tensor:
        return x[i : i + 1, present[i]] if x.shape == ids.shape else x[i : i + 1]

    return [{name: one(x, i) for name, x in given.items()} for i in range(len(ids))]


def _chosen(name: str, given: Sequence[int] | None, count: int, least: int = 0) -> list[int]:
    """Numbers below ``count``, ascending, each once; those below zero count from the end."""
    allowed, most = f"numbers from {least} to {count - 1}", count - 1
    chosen = range(count) if given is None else validation.listed(name, given, allowed)
    found = {validation.integer(name, each, minimum=least, maximum=most) % count for each in chosen}
    if not found:
        raise InvalidArgumentError(name, "none", allowed)
    return sorted(found)


def _positions(given: int | Sequence[int], length: int) -> Tensor:
    if isinstance(given, Sequence) or (isinstance(given, np.ndarray | Tensor) and given.ndim):
        return torch.tensor(_chosen("positions", given, length, -length))
    given = min(validation.integer("positions", given), length)
    even = np.linspace(length - 1, 0, given, endpoint=given >= length)
    return torch.from_numpy(np.unique(even.round().astype(np.int64)))


def audit_heads(
    heads: Heads,
    *,
    positions: int | Sequence[int] = 32,
    components: Sequence[int] = COMPONENTS,
    sinks: int = SINKS,
) -> xr.Dataset:
    """Return what :func:`audit_model` gives, for one layer of bare tensors from any model.

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
    >>> tokens = torch.randn(1, 2, 500, 8, generator=torch.Generator().manual_seed(0))
    >>> heads = Heads(0.5 * tokens, tokens, tokens + 0.2)
    >>> [FINDINGS[code] for code in summary(audit_heads(heads)).finding.values.ravel()]
    ['moments', 'moments']
    """
    validation.instance("heads", heads, Heads, "Heads(query, key, value)")
    where = _positions(positions, heads.query.shape[2])
    with torch.no_grad():
        found = head_statistics(heads, where, components, sinks)
    known = {name: each.numpy() for name, each in found.items()}
    same = {name: each[None] for name, each in widths(heads, len(where)).items()}
    texts = [
        [{name: each[text : text + 1] for name, each in known.items()} | same]
        for text in range(heads.batch)
    ]
    return described(_labeled(texts, [0], list(range(heads.count)), [[where]] * heads.batch))


def _labeled(
    found: list[list[Statistics]],
    layers: list[int],
    chosen: list[int],
    positions: list[list[Tensor]],
    lengths: list[int] | None = None,
) -> xr.Dataset:
    """Statistics by text and length as one dataset of the chosen heads; NaN where there is none."""
    names = list(found[0][0])
    most = max(len(each) for text in positions for each in text)
    shape = (len(names), len(found[0]), len(found), len(layers), len(chosen), most)
    values, query = np.full(shape, np.nan), np.full((*shape[1:3], most), np.nan)
    for i, (text, wheres) in enumerate(zip(found, positions, strict=True)):
        for j, (length, where) in enumerate(zip(text, wheres, strict=True)):
            query[j, i, : len(where)] = where.numpy()
            for number, name in enumerate(names):
                values[number, j, i, :, :, : len(where)] = length[name][:, chosen]
    numbers = derived_numbers(dict(zip(names, values, strict=True)))
    data: dict[str, Any] = {name: (DIMENSIONS, each) for name, each in numbers.items()}
    data["query"] = (("length", "text", "position"), query)
    coordinates: dict[str, Any] = {"layer": layers, "head": chosen, "position": range(most)}
    if lengths is not None:
        return xr.Dataset(data, coords=coordinates | {"length": lengths})
    first = {name: (dims[1:], each[0]) for name, (dims, each) in data.items()}
    return xr.Dataset(first, coords=coordinates)
