"""An audit's answer: which heads to replace, which not, and every head in the order of replacement;
does without torch.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from largeprompt.audit.kinds import FINDINGS, longest, mixtures
from largeprompt.audit.savings import freed_cache

if TYPE_CHECKING:
    from largeprompt.audit.plan import Plan

NAMED = 12  # heads that a sentence names
# columns of the table: heading, variable, format
COLUMNS = (
    ("σ²", "score_variance", ".3g"),
    ("reads", "effective_tokens", ",.0f"),
    ("mean", "mean_error", ".2f"),
    ("affine", "affine_error", ".2f"),
    ("±", "affine_error_bar", ".2f"),
    ("shape", "shape_error", ".2f"),
    ("predicted", "predicted_error", ".2f"),
    ("saves", "saved_operations", ".0%"),
    ("cache", "saved_cache", ".0%"),
    ("longer L", "longer_length", ",.0f"),
    ("saves then", "saved_operations_longer", ".0%"),
    ("cache then", "saved_cache_longer", ".0%"),
)
MEANINGS = {
    "order": "place in the order of replacement, from the smallest affine error on; the "
    "replacement curves go by it",
    "head": "layer and head, counted from 0",
    "L": "tokens of the text that are read",
    "σ²": "variance of the scores, median over queries, as all that follow",
    "reads": "effective number of tokens read, one over the sum of the squared weights",
    "mean": "error of the mean value alone, relative to the head's output",
    "affine": "error of the affine read-out, from mean and covariance of keys and values",
    "±": "its standard error over texts",
    "shape": "what is left of it however many keys of the same law there are; - where that would "
    "be little, but no length that the model reads is known to help",
    "predicted": "affine error that the next shorter length predicted",
    "saves": "share of the head's multiplications that the affine read-out saves at this length",
    "cache": "share of its cache that the affine read-out does without at this length; heads that "
    "share keys and values share their cache, which goes where all of them are replaced",
    "longer L": "eight times this length, or as much of it as the model reads",
    "saves then": "share of the operations that is saved at that length",
    "cache then": "share of the cache that is saved at that length",
    "verdict": "what the head does; in brackets the components of the mixture that is enough, or "
    "the length that is",
    "replace": "whether the head is among those that keep the budget together, and so in "
    "heads.json",
}


def head_rows(data: xr.Dataset) -> list[dict[str, Any]]:
    """One dictionary for each length and head, longest first and in the order of replacement; None
    for what is not known.
    """
    columns = [
        str(name) for name in data if str(name).startswith("head_") and "head" in data[name].dims
    ]
    parts = (
        [data.isel(length=i) for i in reversed(range(data.sizes["length"]))]
        if "length" in data.dims
        else [data]
    )
    rows = []
    for part in parts:
        table = (
            part[columns]
            .to_dataframe(["layer", "head"])[columns]
            .sort_values("head_order", kind="stable")
        )
        for (layer, head), row in table.iterrows():
            code = int(row.pop("head_finding"))
            found: dict[str, Any] = {"length": int(part.length)} if "length" in data.dims else {}
            found |= {
                "layer": int(layer),
                "head": int(head),
                "finding": FINDINGS[code] if code >= 0 else "not judged",
            }
            rows.append(
                found
                | {
                    name.removeprefix("head_"): x if math.isfinite(x) else None
                    for name, x in row.items()
                }
            )
    chosen = _chosen(data)
    return (
        [row | {"chosen": (row["layer"], row["head"]) in chosen} for row in rows]
        if _replaced(data)
        else rows
    )


def _replaced(data: xr.Dataset) -> bool:
    """Whether heads were chosen by replacing them, in a text that is long enough to judge by."""
    return "chosen" in data and bool((longest(data).head_finding >= 0).any())


def _chosen(data: xr.Dataset) -> list[tuple[int, int]]:
    """Heads that are to be replaced, in the order of replacement."""
    if not _replaced(data):
        return []
    order = data.chosen_order if "chosen_order" in data else longest(data).head_order
    place = order.where(data.chosen > 0).stack(pair=("layer", "head"))
    known = place.dropna("pair")
    return [(int(layer), int(head)) for layer, head in known.sortby(known).pair.values.tolist()]


def _measure(data: xr.Dataset) -> Literal["cosine", "loss"]:
    return "loss" if bool(data.kl.notnull().any()) else "cosine"


def chosen_plan(data: xr.Dataset) -> Plan | None:
    """The chosen heads as a plan; None where nothing was replaced, or the text is too short to
    choose by.
    """
    if not _replaced(data):
        return None
    from largeprompt.audit.plan import Plan  # checks its numbers, and so needs torch

    errors = ("confirmed", "kept_error", "confirmed_error")
    known: dict[str, Any] = {
        name: float(data[name]) if name in data and bool(data[name].notnull()) else None
        for name in errors
    }
    layers, count = tuple(_attending(data)), data.sizes["head"]
    return Plan(
        tuple(_chosen(data)),
        layers,
        count,
        _measure(data),
        float(data.attrs["budget"]),
        float(data.kept),
        **known,
    )


def _attending(data: xr.Dataset) -> list[int]:
    """Layers of the model that attend, those that were not looked at among them."""
    return [
        int(layer) for layer in np.atleast_1d(data.attrs.get("attending_layers", data.layer.values))
    ]


def files(data: xr.Dataset) -> dict[str, bytes]:
    """What stands beside the dataset of a run: ``answer.json`` for its page, and ``heads.json`` for
    linearize.
    """
    headings, cells = table(head_rows(data))
    told = {
        "answer": answer(data),
        "headings": headings,
        "rows": cells,
        "meanings": {name: MEANINGS[name] for name in headings},
    }
    plan = chosen_plan(data)
    found = {"answer.json": json.dumps(told).encode()}
    return found if plan is None else found | {"heads.json": plan.json().encode()}


def verdict(row: dict[str, Any]) -> str:
    """The verdict as a table says it, with the number that goes with it."""
    if row["finding"] == "few clusters":
        return f"few clusters ({row['clusters']:.0f})"
    if row["finding"] == "needs a longer prompt":
        return f"longer prompt ({row['needed_length']:,.0f})"
    return str(row["finding"])


def table(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Headings and cells of the table of heads."""
    columns = [each for each in COLUMNS if any(row.get(each[1]) is not None for row in rows)]
    lengths = len({row.get("length") for row in rows}) > 1
    chosen = any("chosen" in row for row in rows)
    headings = [
        "order",
        "head",
        *(["L"] if lengths else []),
        *(name for name, *_ in columns),
        "verdict",
        *(["replace"] if chosen else []),
    ]
    cells = []
    for row in rows:
        numbers = [
            "-" if _unknown(row, name) else format(row[name], form) for _, name, form in columns
        ]
        first = [
            f"{row['order']:.0f}",
            f"{row['layer']}.{row['head']}",
            *([f"{row['length']:,}"] if lengths else []),
        ]
        cells.append(
            [
                *first,
                *numbers,
                verdict(row),
                *(["yes" if row["chosen"] else "no"] if chosen else []),
            ]
        )
    return headings, cells


def _unknown(row: dict[str, Any], name: str) -> bool:
    """Whether a number is not known, or not confirmed: that little of an error is shape, where no
    longer prompt is said to help.
    """
    if name == "shape_error" and row.get("needed_length") is not None:
        return row.get(name) is None or row["finding"] not in (
            "uniform",
            "moments",
            "needs a longer prompt",
        )
    return row.get(name) is None


def answer(data: xr.Dataset) -> str:
    """What to do, in a few sentences: the heads to replace and what that keeps and saves, and those
    to leave alone.
    """
    heads = longest(data)
    names = {code: _names(heads.head_finding == index) for index, code in enumerate(FINDINGS)}
    if not any(names.values()):
        return "No head is judged: the text is shorter than 64 tokens."
    chosen = [f"{layer}.{head}" for layer, head in _chosen(data)]
    leave = [
        name
        for kind in ("selects", "other shape", "mixtures not tried")
        for name in names[kind]
        if name not in chosen
    ]
    tried = "" if mixtures(data) else " (mixtures, which might read some of them, were not tried)"
    last = f" Leave alone: {_listed(leave)}{tried}." if leave else ""
    silent = [str(number) for number in np.atleast_1d(data.attrs.get("silent_layers", []))]
    last += f" No attention in layer{'s' * (len(silent) > 1)} {_listed(silent)}." if silent else ""
    if "chosen" not in data:
        good = [*names["uniform"], *names["moments"]]
        first = (
            f"The affine read-out stands for {_listed(good)}"
            if good
            else "The affine read-out stands for no head"
        )
        return (
            f"{first}, to {float(data.attrs['tolerance']):g} of its output. Nothing was "
            f"replaced to see what that does.{last}"
        )
    budget = float(data.attrs["budget"])
    measure = (
        "cosine of the embeddings"
        if _measure(data) == "cosine"
        else "loss of the next token before over after"
    )
    if not chosen:
        return (
            f"Replace no head: not even the first in the audit's order keeps a {measure} of "
            f"{budget:g}.{last}"
        )
    kept = f"{measure} {_with_error(data, 'kept')}"
    if bool(data.confirmed.notnull()):
        below = "" if float(data.confirmed) >= budget else f", less than the budget of {budget:g}"
        kept += f" ({_with_error(data, 'confirmed')} on texts that did not choose them{below})"
    saved = (
        _saved(heads, data.chosen, data.sizes["layer"] / len(_attending(data)))
        if "head_saved_operations" in heads
        else ""
    )
    which = (
        f"this head, {chosen[0]}"
        if len(chosen) == 1
        else f"these {len(chosen)} heads, {_listed(chosen)}"
    )
    return f"Replace {which}: {kept}{saved}.{last}"


def _with_error(data: xr.Dataset, name: str) -> str:
    """A number and its standard error over texts, where there are several."""
    error = float(data[f"{name}_error"]) if f"{name}_error" in data else math.nan
    return f"{float(data[name]):.4f}" + ("" if math.isnan(error) else f" ± {error:.4f}")


def _saved(heads: xr.Dataset, chosen: xr.DataArray, part: float) -> str:
    """What replacing the chosen heads saves of the attention of all layers, of which ``part`` were
    looked at.
    """

    def both(end: str) -> list[str]:
        operations, cache = (
            heads[f"head_saved_{name}{end}"].fillna(heads[f"head_saved_{name}"])
            for name in ("operations", "cache")
        )
        shares = [float(operations.where(chosen > 0, 0.0).mean())]
        if bool(cache.notnull().all()):
            shares.append(freed_cache(cache, chosen, int(heads.head_group_size.max())))
        return [f"{part * share:.0%}" for share in shares]

    here, longest_length = both(""), float(heads.head_longer_length.max())
    of = (
        "of attention's operations"
        if len(here) == 1
        else f"of attention's operations and {here[1]} of its cache"
    )
    later = (
        f" ({' and '.join(both('_longer'))} at {longest_length:,.0f} tokens)"
        if math.isfinite(longest_length)
        else ""
    )
    return f", {here[0]} {of} saved{later}"


def _names(which: xr.DataArray) -> list[str]:
    found = which.transpose("layer", "head")
    return [f"{int(found.layer[i])}.{int(found['head'][j])}" for i, j in np.argwhere(found.values)]


def _listed(names: list[str]) -> str:
    """The first of many names, and how many more there are."""
    return ", ".join(names[:NAMED]) + (
        f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    )
