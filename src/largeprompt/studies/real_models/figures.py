"""Heads against the length of the prompt, states, factors on the scores, and the exact law."""

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from largeprompt.runs.style import (
    COLORS,
    MARKERS,
    Axes,
    curves,
    describe,
    entry,
    look,
    study_figure,
)
from largeprompt.studies.real_models.rules import HEADS

Array = NDArray[np.float64]


def mean_of(values: xr.DataArray, over: str = "text") -> tuple[Array, Array]:
    """Mean over texts and its standard error, 0 for one text."""
    count = values.notnull().sum(over)
    error = values.std(over, ddof=1) / np.sqrt(count) if values.sizes[over] > 1 else 0 * count
    return values.mean(over).values, error.fillna(0.0).values


@study_figure(
    "language",
    "Left: affine error of the heads of the language model, median over heads and mean over texts "
    "(bars: standard error), and what the shortest prefix foretold by the exact law (dotted). "
    "Right: heads within the tolerance, likewise.",
    needs=("affine_error",),
)
def language(data: xr.Dataset, left: Axes, right: Axes) -> None:
    """Errors and heads within the tolerance against the length."""
    tolerance, told = float(data.attrs["tolerance"]), data.law_foretold.isel(made_at=0)
    known = told.notnull().any(HEADS)
    for axes, seen, before in (
        (left, data.affine_error.median(HEADS), told.median(HEADS)),
        (
            right,
            (data.affine_error <= tolerance).sum(HEADS),
            (told <= tolerance).sum(HEADS).where(known),
        ),
    ):
        axes.errorbar(data.length, *mean_of(seen), label="seen", **look(0, ms=4, lw=1.2))
        words = f"foretold at {int(data.made_at[0])} tokens"
        axes.plot(data.length, mean_of(before)[0], ":", color=COLORS[0], lw=1.2, label=words)
    total = data.sizes["layer"] * data.sizes["head"]
    describe(left, "tokens", "affine error, median over heads", log="xy", legend=7)
    describe(right, "tokens", f"heads of {total} within {tolerance:g}", log="x")


@study_figure(
    "states",
    "Change of the loss with so many of the heads of the language model read from a state of "
    "constant size, the best of another text first; dotted: one percent. Bars: standard error "
    "over texts.",
    panels=(1, 1),
    size=(5.2, 3.1),
    needs=("state_change",),
    cards={"language": 0},
)
def states(data: xr.Dataset, axes: Axes) -> None:
    """Change of the loss against the share of heads."""
    names = {"window": "first and last tokens", "moments": "and moments of the others"}
    styles = ("-", "--", ":", "-.")
    for i, state, one in curves(100 * data.state_change / data.loss, "state"):
        entry(axes, names[str(state)], color=COLORS[i])
        for j, _, row in curves(one, "recent"):
            style = look(i, ms=4, lw=1.0, ls=styles[j % 4])
            axes.errorbar(100 * data.replaced_share, *mean_of(row), **style)
    for j, recent in enumerate(data.recent.values):
        entry(axes, f"{int(recent)} last tokens", ls=styles[j % 4])
    axes.axhline(1.0, color="0.3", lw=1, ls=":")
    axes.set_yscale("symlog", linthresh=1.0)
    words = ("heads read from the state, percent", "change of the loss, percent")
    describe(axes, *words, f"{int(data.attrs['replaced_length'])} tokens", legend=7)


@study_figure(
    "temperature",
    "Loss of the language model over the last eighth of texts longer than it was trained on, with "
    "its scores multiplied by a factor, less that without a factor: mean over texts and standard "
    "error. Positions are interpolated.",
    panels=(1, 1),
    size=(5.2, 3.1),
    needs=("long_loss",),
    cards={"temperature": 0},
)
def temperature(data: xr.Dataset, axes: Axes) -> None:
    """Change of the loss by each factor, for each length."""
    change = (data.long_loss - data.long_loss.sel(scaling="none")).isel(scaling=slice(1, None))
    places = np.arange(change.sizes["scaling"])
    for i, times, one in curves(change, "longer"):
        mean, error = mean_of(one, "long_text")
        words = f"{int(times)} times the trained length"
        axes.errorbar(places + 0.1 * i, mean, error, label=words, **look(i, ls="none", ms=5))
    axes.axhline(0.0, color="0.3", lw=1, ls=":")
    axes.set_xticks(places, [str(name) for name in change.scaling.values])
    describe(axes, "factor on the scores", "change of the loss, nats", legend=7.5)


@study_figure(
    "tables",
    "Affine error of the heads of TabPFN, root mean square, found over expected by the exact law "
    "of as many Gaussian rows: median over the heads of each layer (orange: the first, whose keys "
    "are independent rows; blue: later layers, darker with depth).",
    panels=lambda data: (1, data.sizes["kind"]),
    sharey=True,
    needs=("table_law",),
    cards={"tables": 0},
)
def tables(data: xr.Dataset, *panels: Axes) -> None:
    """Found over expected error against the number of rows, by layer, for each kind of table."""
    ratio = np.sqrt(data.table_found / data.table_law).median("table_head")
    count = data.sizes["table_layer"]
    for axes, (_, kind, one) in zip(panels, curves(ratio, "kind"), strict=True):
        for i, _, line in curves(one, "table_layer"):
            style: dict[str, Any] = {"color": COLORS[0], "ms": 2.5, "lw": 0.9}
            style["alpha"] = 0.25 + 0.5 * i / count
            if i == 0:
                style = {"color": COLORS[1], "ms": 4, "lw": 1.6, "zorder": 5}
            axes.plot(data.rows, line, marker=MARKERS[i > 0], **style)
        axes.axhline(1.0, color="0.3", lw=1, ls=":")
        entry(axes, "first layer", color=COLORS[1])
        entry(axes, "later layers", color=COLORS[0])
        describe(axes, "labeled rows $N$", title=str(kind), log="xy", legend=8, loc="upper left")
    panels[0].set_ylabel("affine error, found over expected")


FIGURES = (states, language, temperature, tables)
