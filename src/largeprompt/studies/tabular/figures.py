"""Heads of the in-context learner against the number of rows, and what replacing them does to its
risk.
"""

from typing import Any

import numpy as np
import xarray as xr

from largeprompt.runs.style import COLOURS, MARKERS, Axes, curves, describe, entry, study_figure

SHOWN = ("two classes", "regression")


def _layers(axes: Axes, values: xr.DataArray) -> None:
    """Median over the heads of each layer against the number of rows, the first layer apart."""
    for i in range(values.sizes["layer"]):
        first = i == 0
        line = values.isel(layer=i).median("head")
        axes.plot(
            values.length,
            line,
            "-" + ("s" if first else "o"),
            color=COLOURS[1] if first else COLOURS[0],
            alpha=1.0 if first else 0.25 + 0.5 * i / values.sizes["layer"],
            ms=4 if first else 2.5,
            lw=1.6 if first else 0.9,
            zorder=5 if first else 2,
        )


@study_figure(
    "law",
    "Affine error of the heads, root mean square, found over expected by the exact law of as many "
    "Gaussian rows: median over the heads of each layer (orange: the first, whose keys are "
    "independent rows; blue: later layers, darker with depth).",
    size=(7.4, 3.1),
    sharey=True,
)
def law(data: xr.Dataset, left: Axes, right: Axes) -> None:
    """Found over expected error against the number of rows, by layer, for both generated kinds."""
    for axes, kind in zip((left, right), SHOWN, strict=True):
        if kind in data.kind.values:
            _layers(axes, np.sqrt(data.found / data.law).sel(kind=kind))
        axes.axhline(1.0, color="0.3", lw=1, ls=":")
        entry(axes, "first layer", color=COLOURS[1], marker="s", ms=4)
        entry(axes, "later layers", color=COLOURS[0], marker="o", ms=3)
        describe(axes, "labelled rows $N$", title=kind, log="xy", legend=8, loc="upper left")
    left.set_ylabel("affine error, found over expected")


@study_figure(
    "heads",
    "Left: heads within the tolerance of their affine read-out, by kind of table. Right: score "
    "variance of every head, median and quartiles over heads, with the line below which softmax "
    "is linear (dotted: half the logarithm of N).",
)
def heads(data: xr.Dataset, left: Axes, right: Axes) -> None:
    """How many heads read mean and covariance, and score variances, against the number of rows."""
    tolerance = float(data.attrs["tolerance"])
    there = data.affine_error.notnull().any(["layer", "head"])
    for i, kind, one in curves(data, "kind"):
        count = (one.affine_error <= tolerance).sum(["layer", "head"]).where(there.sel(kind=kind))
        left.plot(data.length, count, "-" + MARKERS[i], color=COLOURS[i], ms=4, label=str(kind))
        seen = one.score_variance.dropna("length", how="all")
        low, middle, high = seen.quantile([0.25, 0.5, 0.75], ["layer", "head"]).values
        right.plot(seen.length, middle, "-" + MARKERS[i], color=COLOURS[i], ms=4)
        right.fill_between(seen.length, low, high, color=COLOURS[i], alpha=0.12, lw=0)
    right.plot(data.length, np.log(data.length) / 2, ":", color="0.3", lw=1)
    total = data.sizes["layer"] * data.sizes["head"]
    describe(
        left,
        "labelled rows $N$",
        f"heads of {total} within {tolerance:g}",
        "read mean and covariance",
        log="x",
        legend=7.5,
    )
    left.set_ylim(bottom=0)
    describe(
        right,
        "labelled rows $N$",
        r"score variance $\sigma^2$",
        "median and quartiles over heads",
        log="xy",
    )


@study_figure(
    "risk",
    "Left: squared error on linear regression, answered in ten classes, beside the best single "
    "head of softmax and of linear attention, which answer with a number, and the best answer in "
    "ten classes. Right: cross-entropy on two Gaussian classes.",
    needs=("one_softmax", "bayes_squared_error"),
)
def risk(data: xr.Dataset, left: Axes, right: Axes) -> None:
    """Risk against the number of rows, as it is and with heads replaced, beside exact optima."""
    looks = {
        "none": ("as it is", 0),
        "within tolerance": ("heads within tolerance replaced", 2),
        "all": ("all heads replaced", 5),
    }
    for axes, kind, name in (
        (left, "regression", "squared_error"),
        (right, "two classes", "cross_entropy"),
    ):
        if kind not in data.kind.values:
            continue
        one = data.sel(kind=kind)
        for replaced, (label, i) in looks.items():
            row = one.sel(replaced=replaced)
            style: dict[str, Any] = {
                "color": COLOURS[i],
                "marker": MARKERS[i],
                "ms": 4,
                "mfc": "none" if i == 2 else COLOURS[i],
            }
            axes.errorbar(
                one.length.values,
                row[name].values,
                row[f"{name}_error"].values,
                lw=1,
                label=label,
                **style,
            )
        axes.plot(
            one.length, one[f"bayes_{name}"], "-", color="0.2", lw=1, label="best answer in classes"
        )
        if kind == "regression":
            axes.plot(
                one.length,
                one.one_softmax,
                "--",
                color=COLOURS[1],
                lw=1.2,
                label="one softmax head, exact",
            )
            axes.plot(
                one.length,
                one.one_linear,
                ":",
                color=COLOURS[1],
                lw=1.4,
                label="one linear head, exact",
            )
    describe(
        left,
        "labelled rows $N$",
        r"$\mathbf{E}(\hat y-w\cdot x)^2$",
        "linear regression",
        log="xy",
        legend=6.5,
    )
    describe(
        right, "labelled rows $N$", "cross-entropy", "two Gaussian classes", log="xy", legend=6.5
    )


@study_figure(
    "replacement",
    "Change of the cross-entropy with more and more heads replaced by their affine read-out: in "
    "the order of their errors on other "
    "tables, at random, in reverse; left generated tables, right real ones (mean over kinds).",
    needs=("change",),
    sharey=True,
)
def replacement(data: xr.Dataset, left: Axes, right: Axes) -> None:
    """Change of the cross-entropy against the number of heads replaced, for three orders."""
    real = [kind for kind in data.kind.values if kind not in SHOWN]
    made = [kind for kind in data.kind.values if kind in SHOWN]
    for axes, kinds, title in (
        (left, made, "generated tables"),
        (right, real, "iris, wine, breast cancer"),
    ):
        for i, name in enumerate(data.order.values):
            values = data.change.sel(order=name, kind=kinds).mean("kind")
            axes.plot(
                data.heads_replaced,
                values,
                "-" + MARKERS[i],
                color=COLOURS[i],
                ms=4,
                label=f"order: {name}",
            )
        axes.axhline(0.0, color="0.3", lw=1, ls=":")
        describe(axes, "heads replaced", title=title, legend=8)
    left.set(ylabel="change of the cross-entropy")
    left.set_yscale("symlog", linthresh=0.01)


FIGURES = (law, heads, risk, replacement)
