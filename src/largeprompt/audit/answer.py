"""An audit's answer: which heads to replace, and what that keeps and saves."""

import json
import math

import numpy as np
import xarray as xr

from largeprompt.audit.kinds import FINDINGS, head_name, longest, mixtures
from largeprompt.audit.savings import freed_cache
from largeprompt.audit.table import attending, chosen_heads, table, was_replaced

NAMED = 12  # heads that a sentence names
UNTRAINED = 0.1  # largest score variance of all heads; the smallest of MiniLM's 72 heads is 0.27


def answer(data: xr.Dataset) -> str:
    """Return what to do, in a few sentences."""
    heads = longest(data)
    names = {code: _names(heads.head_finding == index) for index, code in enumerate(FINDINGS)}
    if not any(names.values()):
        return "No head is judged: the text is shorter than 64 tokens."
    sentences = [_flat(heads.head_score_variance), _replace(data, heads, names)]
    chosen = [head_name(*pair) for pair in chosen_heads(data)]
    others = ("selects", "other shape", "mixtures not tried")
    leave = [name for kind in others for name in names[kind] if name not in chosen]
    tried = "" if mixtures(data) else " (mixtures, which might read some of them, were not tried)"
    sentences.append(f"Leave alone: {_listed(leave)}{tried}." if leave else "")
    silent = [str(number) for number in np.atleast_1d(data.attrs.get("silent_layers", []))]
    layers = f"layer{'s' * (len(silent) > 1)} {_listed(silent)}"
    sentences.append(f"No attention in {layers}." if silent else "")
    return " ".join(filter(None, sentences))


def _flat(variance: xr.DataArray) -> str:
    if float(variance.max()) > UNTRAINED:
        return ""
    return f"Scores are flat (σ² = {float(variance.median()):.1g}): the model looks untrained."


def _replace(data: xr.Dataset, heads: xr.Dataset, names: dict[str, list[str]]) -> str:
    if "chosen" not in data:
        good = [*names["uniform"], *names["moments"]]
        which = _listed(good) if good else "no head"
        return (
            f"The affine read-out is enough for {which}, to {float(data.attrs['tolerance']):g} of "
            "its output. Nothing was replaced to see what that does."
        )
    budget = float(data.attrs["budget"])
    language = bool(data.kl.notnull().any())
    measure = "next-token loss before/after" if language else "cosine of the embeddings"
    chosen = [head_name(*pair) for pair in chosen_heads(data)]
    if not chosen:
        return f"Replace no head: even the first misses the budget of {budget:g} ({measure})."
    kept = f"{measure} {_with_error(data, 'kept')}"
    if bool(data.confirmed.notnull()):
        below = "" if float(data.confirmed) >= budget else f", less than the budget of {budget:g}"
        kept += f" ({_with_error(data, 'confirmed')} on held-out texts{below})"
    else:
        kept += " (not confirmed: one text)"
    one = len(chosen) == 1
    which = f"this head, {chosen[0]}" if one else f"these {len(chosen)} heads, {_listed(chosen)}"
    return f"Replace {which}: {kept}{_saved(data, heads)}."


def _with_error(data: xr.Dataset, name: str) -> str:
    """A number and its standard error over texts, where there are several."""
    error = float(data[f"{name}_error"])
    return f"{float(data[name]):.4f}" + ("" if math.isnan(error) else f" ± {error:.4f}")


def _saved(data: xr.Dataset, heads: xr.Dataset) -> str:
    """What replacing the chosen heads saves of the attention of all layers."""
    if "head_saved_operations" not in heads:
        return ""
    part = data.sizes["layer"] / len(attending(data))  # of the layers were looked at
    operations = float(heads.head_saved_operations.where(data.chosen > 0, 0.0).mean())
    said = f"{part * operations:.0%} of attention's operations"
    if bool(heads.head_saved_cache.notnull().all()):
        size = int(heads.head_group_size.max())
        cache = part * freed_cache(heads.head_saved_cache, data.chosen, size)
        said += f" and {cache:.0%} of its cache"
    return f"; {said} saved (counted, not timed)"


def _names(which: xr.DataArray) -> list[str]:
    found = which.transpose("layer", "head")
    places = np.argwhere(found.values)
    return [head_name(int(found.layer[i]), int(found["head"][j])) for i, j in places]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def files(data: xr.Dataset) -> dict[str, bytes]:
    """Return what a run keeps beside its dataset: ``answer.json`` and ``heads.json``."""
    shown = table(data)
    told = {
        "answer": answer(data),
        "headings": shown.headings,
        "rows": shown.cells,
        "meanings": {heading: words for heading, *_, words in shown.columns},
    }
    found = {"answer.json": json.dumps(told).encode()}
    return found | ({"heads.json": data.attrs["plan"].encode()} if was_replaced(data) else {})
