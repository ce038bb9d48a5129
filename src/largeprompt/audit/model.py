"""Audit a transformer: statistics of every head while the model reads, as a labelled dataset."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from largeprompt import validation
from largeprompt.audit.adapters.texts import most_tokens
from largeprompt.audit.adapters.transformers import (
    Model,
    attending_layers,
    attention_modules,
    check_model,
    evaluating,
    head_count,
    silent_layers,
    tokens_read,
    watching,
)
from largeprompt.audit.clusters import checked_sizes
from largeprompt.audit.collect import Collector, LooksAheadError, Place, Statistics, widths
from largeprompt.audit.findings import derived_numbers
from largeprompt.audit.heads import Heads
from largeprompt.audit.kinds import described
from largeprompt.audit.statistics import head_statistics
from largeprompt.audit.subsets import subset_statistics
from largeprompt.errors import InvalidArgumentError
from largeprompt.runs.study import Progress, quiet

COMPONENTS, SINKS = (1, 2, 4, 8, 16), 1
DIMENSIONS = ("length", "text", "layer", "head", "position")
OF_LENGTH = ("dynamic", "longrope")  # rotary embeddings that change with the length of the text


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
        where a text has no such.

    Raises
    ------
    AuditError
        Where a head's output, recomputed from what was seen, is not the model's own: layer and head
        are named.
    """
    check_model(model, inputs)
    reach, silent = attending_layers(model), silent_layers(model)
    layers = reach if layers is None else _chosen("layers", layers, reach[-1] + 1)
    if not set(layers) <= set(reach):
        raise InvalidArgumentError("layers", str(layers), f"layers that attend: {reach}")
    heads = _chosen("heads", heads, head_count(model))
    texts = _texts(inputs)
    counts = [tokens_read(model, text) for text in texts]
    shortest, longest = min(counts), max(counts)
    wanted = None
    if lengths is not None:
        each = validation.listed("lengths", lengths, "a sequence of lengths")
        wanted = [int(validation.length("lengths", length)) for length in each]
    if wanted is not None and "input_ids" not in inputs:
        raise InvalidArgumentError(
            "lengths", str(wanted), "None where the inputs are not tokens of a text"
        )
    if wanted is not None and (not wanted or any(not 2 <= length <= shortest for length in wanted)):
        raise InvalidArgumentError(
            "lengths", str(wanted), f"from 2 to the {shortest} tokens of the shortest text"
        )
    sizes, sinks = checked_sizes(components), validation.integer("sinks", sinks, minimum=0)
    found, places = [], []
    for number, (text, count) in enumerate(zip(texts, counts, strict=True), 1):
        places.append([Place(size, _positions(positions, size)) for size in wanted or [count]])
        tell = functools.partial(_tell, progress, f"text {number} of {len(texts)}")
        found.append(_seen(model, text, layers, places[-1], sizes, sinks, tell))
    data = _labelled(
        found,
        sorted(layers),
        heads,
        [[place.positions for place in each] for each in places],
        wanted,
    )
    data.attrs |= {
        "model": type(model).__name__,
        "tokens": longest,
        "sinks": sinks,
        "dtype": str(model.dtype),
    }
    data.attrs |= {"attending_layers": reach} | ({"silent_layers": silent} if silent else {})
    data.attrs |= {"positions_allowed": allowed} if (allowed := most_tokens(model.config)) else {}
    return described(data)


def _tell(progress: Progress, text: str, tokens: int) -> None:
    progress(f"{text}: {tokens} tokens")


def _texts(inputs: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """Each text by itself, shape (1, its tokens), its padding taken off on whichever side."""
    if "input_ids" not in inputs:  # images, sounds: each by itself, as it is
        if len({len(value) for value in inputs.values()}) != 1:
            allowed = (
                "input_ids, or what else the model reads (pixel_values, input_features, "
                "...), one first dimension for all"
            )
            raise InvalidArgumentError(
                "inputs", str({name: tuple(value.shape) for name, value in inputs.items()}), allowed
            )
        return [
            {name: value[i : i + 1] for name, value in inputs.items()}
            for i in range(len(next(iter(inputs.values()))))
        ]
    ids, mask = inputs["input_ids"], inputs.get("attention_mask")
    if ids.dim() != 2 or ids.shape[1] < 2:
        allowed = "shape (texts, tokens) with at least two tokens"
        raise InvalidArgumentError("inputs", f"input_ids of shape {tuple(ids.shape)}", allowed)
    present = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
    if present.shape != ids.shape or int(present.sum(1).min()) < 2:
        raise InvalidArgumentError(
            "inputs",
            "an attention_mask that leaves a text fewer than two tokens",
            "two tokens at least",
        )
    given = {name: value for name, value in inputs.items() if name != "attention_mask"}
    return [
        {
            name: value[i : i + 1, kept] if value.shape == ids.shape else value[i : i + 1]
            for name, value in given.items()
        }
        for i, kept in enumerate(present)
    ]


def _chosen(name: str, given: Sequence[int] | None, count: int, least: int = 0) -> list[int]:
    """Numbers below ``count``, ascending, each once; all of them when None is given. Those below
    zero count from the end.
    """
    allowed = f"numbers from {least} to {count - 1}"
    chosen = range(count) if given is None else validation.listed(name, given, allowed)
    try:
        found = sorted(
            {
                validation.integer(name, each, minimum=least, maximum=count - 1) % count
                for each in chosen
            }
        )
    except InvalidArgumentError as error:
        raise InvalidArgumentError(name, error.given, allowed) from None
    if not found:
        raise InvalidArgumentError(name, "none", allowed)
    return found


def _positions(given: int | Sequence[int], length: int) -> Tensor:
    if isinstance(given, Sequence) or (isinstance(given, np.ndarray | Tensor) and given.ndim):
        return torch.tensor(_chosen("positions", given, length, -length))
    given = min(validation.integer("positions", given), length)
    return torch.from_numpy(
        np.unique(
            np.linspace(length - 1, 0, given, endpoint=given >= length).round().astype(np.int64)
        )
    )


def audit_heads(
    heads: Heads,
    *,
    positions: int | Sequence[int] = 32,
    components: Sequence[int] = COMPONENTS,
    sinks: int = SINKS,
) -> xr.Dataset:
    """What :func:`audit_model` gives, for one layer of bare tensors from any model; :func:`summary`
    makes verdicts of it.

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
    validation.instance(
        "heads",
        heads,
        Heads,
        "Heads(query, key, value, mask, scale)",
        "module_heads makes them of a module.",
    )
    where = _positions(positions, heads.query.shape[2])
    with torch.no_grad():
        found = head_statistics(heads, where, components, sinks) | subset_statistics(heads, where)
    known = {name: each.numpy() for name, each in found.items()}
    same = {name: each[None] for name, each in widths(heads, where).items()}
    texts = [
        [{name: each[text : text + 1] for name, each in known.items()} | same]
        for text in range(heads.batch)
    ]
    return described(_labelled(texts, [0], list(range(heads.count)), [[where]] * heads.batch))


def _labelled(
    found: list[list[Statistics]],
    layers: list[int],
    chosen: list[int],
    positions: list[list[Tensor]],
    lengths: list[int] | None = None,
) -> xr.Dataset:
    """Statistics by text and length as one dataset of the chosen heads, with what is derived from
    them; NaN where there is none.
    """
    names = list(dict.fromkeys(name for text in found for length in text for name in length))
    most = max(len(each) for text in positions for each in text)
    values = np.full(
        (len(names), len(found[0]), len(found), len(layers), len(chosen), most), np.nan
    )
    query = np.full((len(found[0]), len(found), most), np.nan)
    for i, (text, wheres) in enumerate(zip(found, positions, strict=True)):
        for j, (length, where) in enumerate(zip(text, wheres, strict=True)):
            query[j, i, : len(where)] = where.numpy()
            for number, name in enumerate(names):
                if name in length:
                    values[number, j, i, :, :, : len(where)] = length[name][:, chosen]
    numbers = derived_numbers(dict(zip(names, values, strict=True)))
    data = {name: (DIMENSIONS, each) for name, each in numbers.items()} | {
        "query": (("length", "text", "position"), query)
    }
    coordinates: dict[str, Any] = {"layer": layers, "head": chosen, "position": range(most)}
    if lengths is not None:
        return xr.Dataset(data, coords=coordinates | {"length": lengths})
    return xr.Dataset(
        {name: (dims[1:], each[0]) for name, (dims, each) in data.items()}, coords=coordinates
    )


def _seen(
    model: Model,
    inputs: Mapping[str, Tensor],
    layers: list[int],
    places: list[Place],
    components: tuple[int, ...],
    sinks: int,
    progress: Callable[[int], None],
) -> list[Statistics]:
    """Statistics of the wanted layers at each place: in one pass of the model where tokens do not
    see later ones.
    """
    groups = (
        [places] if len(places) == 1 or _reads_prefixes(model) else [[place] for place in places]
    )
    try:
        return [
            found
            for group in groups
            for found in _pass(model, inputs, layers, group, components, sinks, progress)
        ]
    except LooksAheadError:
        return [
            found
            for place in places
            for found in _seen(model, inputs, layers, [place], components, sinks, progress)
        ]


def _reads_prefixes(model: Model) -> bool:
    """Whether the model makes of the first tokens of a text what it makes of them alone, as far as
    its parts say.
    """
    rotary = str(getattr(model.config.get_text_config(), "rope_parameters", ""))
    return all(getattr(each, "is_causal", False) for each in attention_modules(model)) and not any(
        word in rotary for word in OF_LENGTH
    )


def _pass(
    model: Model,
    inputs: Mapping[str, Tensor],
    layers: list[int],
    places: list[Place],
    components: tuple[int, ...],
    sinks: int,
    progress: Callable[[int], None],
) -> list[Statistics]:
    """One pass of the model over the longest of the lengths."""
    longest = max(place.length for place in places)
    progress(longest)
    texts = "input_ids" in inputs  # of sounds and images nothing is cut
    cut = {
        name: value[:, :longest] if texts and value.dim() == 2 else value
        for name, value in inputs.items()
    }
    known, given = (
        inspect.signature(model.forward).parameters,
        {"use_cache": False, "logits_to_keep": 1},
    )
    collector = Collector(layers, places, components, sinks)
    with evaluating(model), watching(model, collector):
        model(
            **cut,
            **{name: value for name, value in given.items() if name in known and name not in cut},
        )
        return collector.finish()
