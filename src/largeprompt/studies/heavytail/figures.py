"""Heavy tails: effective tokens against length, where laws break, what lies
beyond, and training.
"""

import math
from typing import Any

import numpy as np
import xarray as xr

from largeprompt.runs.style import (
    COLOURS,
    DASHES,
    Axes,
    curves,
    describe,
    entry,
    marks,
    study_figure,
    ticks,
)
from largeprompt.studies.heavytail.formulas import FEWEST, middle_tilt

SHOWN = (math.inf, 20.0, 10.0, 5.0, 3.0, 1.0)  # df drawn where there are many
MARK: dict[str, Any] = {"ms": 3.5, "mec": "0.2", "mew": 0.3}


def _label(df: float) -> str:
    return r"df $=\infty$" if math.isinf(df) else f"df = {df:g}"


def _spread(low: xr.DataArray, middle: xr.DataArray, high: xr.DataArray) -> Any:
    """Lengths of error bars from their ends."""
    return np.abs(np.stack([middle - low, high - middle]))


def _students(data: xr.Dataset, tilt: float) -> list[xr.Dataset]:
    """Cases of the Student-t law at one tilt, lightest tails first."""
    chosen = [
        i
        for i in range(data.sizes["case"])
        if float(data.tilt[i]) == tilt and float(data.df[i]) in SHOWN
    ]
    return [data.isel(case=i) for i in sorted(chosen, key=lambda i: -float(data.df[i]))]


def _draw_collision(axes: Axes, case: xr.Dataset, i: int, label: str, inverse: bool) -> None:
    """Exact E Σ w² (or its inverse) as a line, drawn prompts as marks with two standard errors."""
    value, error = (
        case[name].sel(quantity="participation") for name in ("sampled", "sampled_standard_error")
    )
    low, high = (value - 2 * error).clip(min=float(value.min()) / 10), value + 2 * error
    line, low, mark, high = (
        (1 / case.curve, 1 / high, 1 / value, 1 / low)
        if inverse
        else (case.curve, low, value, high)
    )
    axes.plot(case.grid, line, color=COLOURS[i], ls=DASHES[i], label=label)
    marks(axes, i, case.length, mark, _spread(low, mark, high), **MARK)


@study_figure(
    "tails",
    "Lines: exact, by quadrature; marks: drawn prompts, ± 2 s.e.; dotted: what is predicted as L "
    "grows. Left: effective number of tokens of Student-t prompts, which for every finite df "
    "rises and then falls to one. Middle: Σ w² of Laplace prompts on either side of the edge of "
    "their cgf. Right: how the weights of Student-t prompts become argmax.",
    size=(9.6, 3.7),
    panels=(1, 3),
    cards={"N3": 0},
)
def tails(data: xr.Dataset, left: Axes, middle: Axes, right: Axes) -> None:
    """Effective tokens of Student-t prompts; Σ w² of Laplace prompts; distance of Student-t weights
    from argmax.
    """
    tilt = middle_tilt(data)
    students = _students(data, tilt)
    for i, case in enumerate(students):
        _draw_collision(left, case, i, _label(float(case.df)), inverse=True)
    for axes in (left, middle, right):
        entry(axes, "drawn ± 2 s.e.", marker="o", ls="none", ms=3.5)
        if axes is not left:
            entry(axes, "as $L$ grows", lw=0.7, ls=":")
    left.set(
        ylabel=r"effective tokens $1/\mathbf{E}\,\Sigma w^2$",
        title=f"Student-t, $u={tilt:g}$",
        ylim=(0.8, 3e5),
    )
    for i, index in enumerate(np.flatnonzero((data.law == "Laplace").values)):
        case = data.isel(case=index)
        _draw_collision(middle, case, i, f"$u={case.tilt:g}$", inverse=False)
        middle.plot(case.grid, case.asymptote, color="0.4", lw=0.7, ls=":", zorder=1)
    middle.set(
        ylabel=r"$\mathbf{E}\,\Sigma w^2$", title=r"Laplace, edge $\sqrt{2}$", ylim=(1e-14, 2)
    )
    for i, case in enumerate(case for case in students if float(case.df) <= 5):
        rest = (1 - case.curve).where(1 - case.curve > 1e-10)
        right.plot(case.grid, rest, color=COLOURS[i], ls=DASHES[i], label=_label(float(case.df)))
        right.plot(
            case.grid, (1 - case.asymptote).clip(max=3), color="0.4", lw=0.7, ls=":", zorder=1
        )
        value = 1 - case.sampled.sel(quantity="participation")
        error = 2 * case.sampled_standard_error.sel(quantity="participation")
        seen = value > error
        marks(right, i, case.length[seen], value[seen], error[seen], **MARK)
    right.set(
        ylabel=r"$1-\mathbf{E}\,\Sigma w^2$", title=f"towards argmax, $u={tilt:g}$", ylim=(1e-9, 3)
    )
    for axes in (left, middle, right):
        describe(axes, "prompt length $L$", log="xy", legend=7, below=3)


@study_figure(
    "breakdown",
    "Left: df below which Σ w² is twice that of Gaussian tokens of the same variance, exact "
    "(lines), drawn (marks, ± 2 s.e.; hollow: too few prompts to be judged) and by a rule of "
    "thumb (dotted). Right: tail index of the largest weights of one prompt, of the law's "
    "quantiles (lines) and drawn (median and quartiles); grey: 0.7.",
    size=(7.4, 3.7),
)
def breakdown(data: xr.Dataset, left: Axes, right: Axes) -> None:
    """df below which a prompt breaks, against length; tail index of the weights, against length."""
    enough = (data.replicas.min("case") >= FEWEST).values
    for i, tilt, row in curves(data, "breakdown_tilt"):
        left.plot(row.grid, row.breakdown, color=COLOURS[i], ls=DASHES[i], label=f"$u={tilt:g}$")
        left.plot(row.grid, row.thumb, color=COLOURS[i], ls=":", lw=0.8)
        here, error = row.measured_breakdown, 2 * row.measured_breakdown_error
        known = (np.isfinite(here) & np.isfinite(error)).values
        # hollow: not judged
        looks: tuple[dict[str, Any], ...] = ({"mec": "0.2", "mew": 0.3}, {"mfc": "white"})
        for seen, look in zip((known & enough, known & ~enough), looks, strict=True):
            marks(left, i, here.length[seen], here[seen], error[seen], **look)
    entry(left, "rule of thumb", lw=0.8, ls=":")
    entry(left, "drawn", marker="o", ls="none", ms=4)
    entry(left, "drawn, too few", marker="o", ls="none", ms=4, mfc="white")
    describe(
        left, "prompt length $L$", "df of the breakdown", log="xy", legend=7, below=3, ylim=(2, 300)
    )
    ticks(left, "y", (2, 5, 10, 20, 50, 100, 200))
    for i, case in enumerate(_students(data, middle_tilt(data))):
        right.plot(
            case.length,
            case.predicted_tail_index,
            color=COLOURS[i],
            ls=DASHES[i],
            label=_label(float(case.df)),
        )
        low, middle, high = (case.tail_index.sel(level=level) for level in (0.25, 0.5, 0.75))
        marks(right, i, case.length, middle, _spread(low, middle, high), **MARK)
    right.axhline(0.7, color="0.6", lw=0.8, zorder=0, label="0.7")
    entry(right, "drawn", marker="o", ls="none", ms=3.5)
    describe(
        right,
        "prompt length $L$",
        r"tail index $\hat k$ of the weights",
        log="xy",
        legend=7,
        below=4,
    )


@study_figure(
    "heavy_training",
    "In-context regression with one Student-t input after SGD on drawn prompts: population risk "
    "(left, df > 2) and median squared error on independent prompts over that of saying 0 "
    "(right), with exact gradient descent and the least risk.",
    size=(7.4, 3.0),
)
def training(data: xr.Dataset, left: Axes, right: Axes) -> None:
    """Population risk and median error of SGD runs against df, with exact descent and the least
    risk.
    """
    part = data.isel(training_df=np.argsort(-data.training_df.values))
    place = np.arange(part.sizes["training_df"])
    names = [r"$\infty$" if math.isinf(df) else f"{df:g}" for df in part.training_df.values]
    for axes, found in ((left, "risk"), (right, "median")):
        finite = abs(part[f"run_{found}"]) < math.inf
        runs = part[f"run_{found}"].where(finite, 1e3)
        low, middle, high = (runs.quantile(level, "run", skipna=False) for level in (0.1, 0.5, 0.9))
        seen = (finite.any("run") & (middle < 1e2)).values
        spread, dots = (
            _spread(low, middle, high)[:, seen],
            {"marker": "o", "mec": "0.2", "mew": 0.3},
        )
        marks(axes, 1, place[seen], middle[seen], spread, "SGD, 10 to 90 %", **dots)
        axes.plot(place, part.descent.sel(found=found), color=COLOURS[0], label="exact descent")
        axes.plot(
            place, part.optimum.sel(found=found), color=COLOURS[2], ls="--", label="least risk"
        )
        axes.set_xticks(place, names)
        axes.set(xlabel="df", yscale="log", xlim=(-0.5, len(place) - 0.5))
        axes.minorticks_off()
    left.set(ylabel="population risk at the end", ylim=(0.04, 3))
    right.axhline(1.0, color="0.6", lw=0.8, zorder=0)
    right.set(ylabel="median squared error, relative", ylim=(0.03, 30))
    for x, share in enumerate(100 * part.diverged.astype(float).mean("run").values):
        if share:
            right.text(
                x, 12, f"{share:.0f}%\nlost", ha="center", va="center", fontsize=6, color="0.35"
            )
    left.legend(fontsize=7.5, loc="upper left")


FIGURES = (tails, breakdown, training)
