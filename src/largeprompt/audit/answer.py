"""An audit's answer: which heads to replace, which not, and every head in the order of replacement; does without torch."""

import math
from typing import Any, Literal

import numpy as np
import xarray as xr

from largeprompt.audit.kinds import FINDINGS, longest
from largeprompt.audit.plan import Plan
from largeprompt.audit.savings import LONGER

NAMED = 12  # heads that a sentence names
# columns of the table: heading, variable, format
COLUMNS = (
    ("σ²", "score_variance", ".3g"),
    ("reads", "effective_tokens", ",.0f"),
    ("mean", "mean_error", ".2f"),
    ("affine", "affine_error", ".2f"),
    ("shape", "shape_error", ".2f"),
    ("predicted", "predicted_error", ".2f"),
    ("saves", "saved_operations", ".0%"),
    (f"at {LONGER} L", "saved_operations_longer", ".0%"),
)


def head_rows(data: xr.Dataset) -> list[dict[str, Any]]:
    """One dictionary for each length and head, longest first and in the order of replacement; None for what is not known."""
    columns = [str(name) for name in data if str(name).startswith("head_") and "head" in data[name].dims]
    parts = [data.isel(length=i) for i in reversed(range(data.sizes["length"]))] if "length" in data.dims else [data]
    rows = []
    for part in parts:
        table = part[columns].to_dataframe(["layer", "head"])[columns].sort_values("head_order", kind="stable")
        for (layer, head), row in table.iterrows():
            code = int(row.pop("head_finding"))
            found: dict[str, Any] = {"length": int(part.length)} if "length" in data.dims else {}
            found |= {"layer": int(layer), "head": int(head), "finding": FINDINGS[code] if code >= 0 else "not judged"}
            rows.append(found | {name.removeprefix("head_"): x if math.isfinite(x) else None for name, x in row.items()})
    chosen = _chosen(data)
    return [row | {"chosen": (row["layer"], row["head"]) in chosen} for row in rows] if "chosen" in data else rows


def _chosen(data: xr.Dataset) -> list[tuple[int, int]]:
    """Heads that are to be replaced, in the order of replacement."""
    if "chosen" not in data:
        return []
    place = longest(data).head_order.where(data.chosen > 0).stack(pair=("layer", "head"))
    known = place.dropna("pair")
    return [(int(layer), int(head)) for layer, head in known.sortby(known).pair.values.tolist()]


def _measure(data: xr.Dataset) -> Literal["cosine", "loss"]:
    return "loss" if bool(data.kl.notnull().any()) else "cosine"


def chosen_plan(data: xr.Dataset) -> Plan | None:
    """The chosen heads as a plan; None where nothing was replaced."""
    if "chosen" not in data:
        return None
    confirmed = float(data.confirmed) if bool(data.confirmed.notnull()) else None
    layers, count = tuple(data.layer.values.tolist()), data.sizes["head"]
    return Plan(tuple(_chosen(data)), layers, count, _measure(data), float(data.attrs["budget"]), float(data.kept), confirmed)


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
        numbers = ["-" if row.get(name) is None else format(row[name], form) for _, name, form in columns]
        first = [f"{row['order']:.0f}", f"{row['layer']}.{row['head']}", *([f"{row['length']:,}"] if lengths else [])]
        cells.append([*first, *numbers, verdict(row), *(["yes" if row["chosen"] else "no"] if chosen else [])])
    return headings, cells


def answer(data: xr.Dataset) -> str:
    """What to do, in a few sentences: the heads to replace and what that keeps and saves, and those to leave alone."""
    heads = longest(data)
    names = {code: _names(heads.head_finding == index) for index, code in enumerate(FINDINGS)}
    if not any(names.values()):
        return "No head is judged: the text is shorter than 64 tokens."
    chosen = [f"{layer}.{head}" for layer, head in _chosen(data)] if "chosen" in data else []
    leave = [name for kind in ("selects", "other shape") for name in names[kind] if name not in chosen]
    last = f" Leave alone: {_listed(leave)}." if leave else ""
    if "chosen" not in data:
        good = [*names["uniform"], *names["moments"]]
        first = f"The affine read-out stands for {_listed(good)}" if good else "The affine read-out stands for no head"
        return f"{first}, to {float(data.attrs['tolerance']):g} of its output. Nothing was replaced to see what that does.{last}"
    budget = float(data.attrs["budget"])
    measure = "cosine of the embeddings" if _measure(data) == "cosine" else "loss of the next token before over after"
    if not chosen:
        return f"Replace no head: not even the first in the audit's order keeps a {measure} of {budget:g}.{last}"
    kept = f"{measure} {float(data.kept):.4f}"
    if bool(data.confirmed.notnull()):
        below = "" if float(data.confirmed) >= budget else f", less than the budget of {budget:g}"
        kept += f" ({float(data.confirmed):.4f} on texts that did not choose them{below})"
    saved = ""
    if "head_saved_operations" in heads:
        total = heads.head_saved_operations.size
        here, later = (
            float(heads[f"head_saved_operations{each}"].where(data.chosen > 0).sum()) / total for each in ("", "_longer")
        )
        saved = f", {here:.0%} of attention's operations saved, {later:.0%} at {LONGER} times the length"
    which = f"this head, {chosen[0]}" if len(chosen) == 1 else f"these {len(chosen)} heads, {_listed(chosen)}"
    return f"Replace {which}: {kept}{saved}.{last}"


def _names(which: xr.DataArray) -> list[str]:
    found = which.transpose("layer", "head")
    return [f"{int(found.layer[i])}.{int(found['head'][j])}" for i, j in np.argwhere(found.values)]


def _listed(names: list[str]) -> str:
    """The first of many names, and how many more there are."""
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
