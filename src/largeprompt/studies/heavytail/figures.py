"""Heavy tails: effective tokens against length, where laws break, what lies beyond, and training."""

from __future__ import annotations

import math

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from largeprompt.runs.style import COLOURS, DASHES, MARKERS, house_style

FEWEST = 400  # prompts from which a drawn breakdown is judged
SHOWN = (math.inf, 20.0, 10.0, 5.0, 3.0, 1.0)  # df drawn where there are many


def _label(df: float) -> str:
    return r"df $=\infty$" if math.isinf(df) else f"df = {df:g}"


def _middle_tilt(data: xr.Dataset) -> float:
    return float(data.breakdown_tilt[data.sizes["breakdown_tilt"] // 2])


def _students(data: xr.Dataset, tilt: float) -> list[xr.Dataset]:
    """Cases of the Student-t law at one tilt, lightest tails first."""
    chosen = [i for i in range(data.sizes["case"]) if float(data.tilt[i]) == tilt and float(data.df[i]) in SHOWN]
    return [data.isel(case=i) for i in sorted(chosen, key=lambda i: -float(data.df[i]))]


def _draw_participation(axes: Axes, case: xr.Dataset, i: int, label: str, inverse: bool) -> None:
    """Exact E Σ w² (or its inverse) as a line, drawn prompts as marks with two standard errors."""
    value, error = (case[name].sel(quantity="participation") for name in ("sampled", "sampled_standard_error"))
    colour, low, high = COLOURS[i % len(COLOURS)], value - 2 * error, value + 2 * error
    low = low.clip(min=float(value.min()) / 10)
    line, mark, ends = (1 / case.curve, 1 / value, (1 / high, 1 / low)) if inverse else (case.curve, value, (low, high))
    axes.plot(case.grid, line, color=colour, ls=DASHES[i % len(DASHES)], label=label)
    spread = np.abs(np.stack([mark - ends[0], ends[1] - mark]))
    axes.errorbar(case.length, mark, spread, fmt=MARKERS[i % len(MARKERS)], color=colour, ms=3.5, lw=0.8, mec="0.2", mew=0.3)


def tails_figure(data: xr.Dataset) -> Figure:
    """Effective tokens of Student-t prompts; participation of Laplace prompts; distance of Student-t weights from argmax."""
    tilt = _middle_tilt(data)
    with house_style():
        figure = Figure(figsize=(9.6, 3.1))
        left, middle, right = figure.subplots(1, 3)
        for i, case in enumerate(_students(data, tilt)):
            _draw_participation(left, case, i, _label(float(case.df)), inverse=True)
        left.set(ylabel=r"effective tokens $1/\mathbf{E}\,\Sigma w^2$", title=f"Student-t, $u={tilt:g}$", ylim=(0.8, 3e5))
        laplace = np.flatnonzero((data.law == "Laplace").values)
        for i, index in enumerate(laplace):
            case = data.isel(case=index)
            _draw_participation(middle, case, i, f"$u={float(case.tilt):g}$", inverse=False)
            middle.plot(case.grid, case.asymptote, color="0.4", lw=0.7, ls=":", zorder=1)
        middle.set(ylabel=r"$\mathbf{E}\,\Sigma w^2$", title=r"Laplace, edge $\sqrt{2}$", ylim=(1e-14, 2))
        heavy = [case for case in _students(data, tilt) if math.isfinite(float(case.df)) and float(case.df) <= 5]
        for i, case in enumerate(heavy):
            colour, rest = COLOURS[i], (1 - case.curve).where(1 - case.curve > 1e-10)
            right.plot(case.grid, rest, color=colour, ls=DASHES[i], label=_label(float(case.df)))
            right.plot(case.grid, (1 - case.asymptote).clip(max=3), color="0.4", lw=0.7, ls=":", zorder=1)
            value = 1 - case.sampled.sel(quantity="participation")
            error = 2 * case.sampled_standard_error.sel(quantity="participation")
            seen = value > error
            right.errorbar(
                case.length[seen], value[seen], error[seen], fmt=MARKERS[i], color=colour, ms=3.5, lw=0.8, mec="0.2", mew=0.3
            )
        right.set(ylabel=r"$1-\mathbf{E}\,\Sigma w^2$", title=f"towards argmax, $u={tilt:g}$", ylim=(1e-9, 3))
        for axes in (left, middle, right):
            axes.set(xscale="log", yscale="log", xlabel="prompt length $L$")
        left.legend(fontsize=7, loc="upper right")
        middle.legend(fontsize=7, ncols=2, loc="lower left")
        right.legend(fontsize=7, loc="lower left")
    return figure


def breakdown_figure(data: xr.Dataset) -> Figure:
    """df below which a prompt breaks, against length; tail index of the weights, against length."""
    with house_style():
        figure = Figure(figsize=(7.4, 3.1))
        left, right = figure.subplots(1, 2)
        for i, tilt in enumerate(data.breakdown_tilt.values):
            row = data.breakdown.sel(breakdown_tilt=tilt)
            left.plot(row.grid, row, color=COLOURS[i], ls=DASHES[i], label=f"$u={tilt:g}$")
            left.plot(row.grid, data.thumb.sel(breakdown_tilt=tilt), color=COLOURS[i], ls=":", lw=0.8)
            here = data.measured_breakdown.sel(breakdown_tilt=tilt)
            error = 2 * data.measured_breakdown_error.sel(breakdown_tilt=tilt)
            known = (np.isfinite(here) & np.isfinite(error)).values
            enough = (data.replicas.min("case") >= FEWEST).values
            for seen, look in (
                (known & enough, {"mec": "0.2", "mew": 0.3}),
                (known & ~enough, {"mfc": "white"}),
            ):  # hollow: not judged
                left.errorbar(here.length[seen], here[seen], error[seen], fmt=MARKERS[i], color=COLOURS[i], ms=4, lw=0.8, **look)
        left.set(xscale="log", yscale="log", xlabel="prompt length $L$", ylabel="df of the breakdown", ylim=(2, 300))
        left.set_yticks([2, 5, 10, 20, 50, 100, 200], ["2", "5", "10", "20", "50", "100", "200"])
        left.set_yticks([], minor=True)
        left.legend(fontsize=7.5, loc="upper left")
        for i, case in enumerate(_students(data, _middle_tilt(data))):
            low, middle, high = (case.tail_index.sel(level=level) for level in (0.25, 0.5, 0.75))
            right.plot(
                case.length, case.predicted_tail_index, color=COLOURS[i], ls=DASHES[i % len(DASHES)], label=_label(float(case.df))
            )
            spread = np.abs(np.stack([middle - low, high - middle]))
            right.errorbar(case.length, middle, spread, fmt=MARKERS[i], color=COLOURS[i], ms=3.5, lw=0.8, mec="0.2", mew=0.3)
        right.axhline(0.7, color="0.6", lw=0.8, zorder=0)
        right.set(
            xscale="log", yscale="log", xlabel="prompt length $L$", ylabel=r"tail index $\hat k$ of the weights", ylim=(0.15, 3e3)
        )
        right.legend(fontsize=7, ncols=3, loc="upper left")
    return figure


def training_figure(data: xr.Dataset) -> Figure:
    """Population risk and median error of SGD runs against df, with exact descent and the least risk."""
    with house_style():
        figure = Figure(figsize=(7.4, 3.0))
        left, right = figure.subplots(1, 2)
        order = np.argsort(-data.training_df.values)
        part = data.isel(training_df=order)
        place, names = np.arange(len(order)), [r"$\infty$" if math.isinf(df) else f"{df:g}" for df in part.training_df.values]
        for axes, name, found in ((left, "run_risk", "risk"), (right, "run_median", "median")):
            runs = part[name].where(np.isfinite(part[name]), 1e3)
            low, middle, high = (runs.quantile(level, "run", skipna=False) for level in (0.1, 0.5, 0.9))
            seen = np.isfinite(part[name].values).any(part[name].get_axis_num("run")) & (middle < 1e2).values
            spread = np.abs(np.stack([middle - low, high - middle]))[:, seen]
            axes.errorbar(
                place[seen], middle[seen], spread, fmt="o", color=COLOURS[1], mec="0.2", mew=0.3, lw=0.9, label="SGD, 10 to 90 %"
            )
            axes.plot(place, part.descent.sel(found=found), color=COLOURS[0], label="exact descent")
            axes.plot(place, part.optimum.sel(found=found), color=COLOURS[2], ls="--", label="least risk")
            axes.set_xticks(place, names)
            axes.set(xlabel="df", yscale="log", xlim=(-0.5, len(order) - 0.5))
            axes.minorticks_off()
        left.set(ylabel="population risk at the end", ylim=(0.04, 3))
        right.axhline(1.0, color="0.6", lw=0.8, zorder=0)
        right.set(ylabel="median squared error, relative", ylim=(0.03, 30))
        for x, share in zip(place, 100 * part.diverged.astype(float).mean("run").values, strict=True):
            if share:
                right.text(x, 12, f"{share:.0f}%\nlost", ha="center", va="center", fontsize=6, color="0.35")
        left.legend(fontsize=7.5, loc="upper left")
    return figure
