"""Residual self-attention in depth: errors with their predicted band, where the closure breaks, and what normalisation does."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter

from largeprompt.runs.style import COLOURS, DASHES, MARKERS, house_style, length_label

NAMES = {"token": "token outputs", "mean": "empirical mean", "covariance": "empirical covariance"}
SCALE_LABELS = {"1/N": r"$V\sim 1/N$", "1/√N": r"$V\sim 1/\sqrt{N}$", "1": r"$V\sim 1$"}


def shown_cases(data: xr.Dataset) -> list[str]:
    """One stack for each size of V: the first case of each."""
    first: dict[str, str] = {}
    for case, scale in zip(data.case.values, data.value_scale.values, strict=True):
        first.setdefault(str(scale), str(case))
    return list(first.values())


def draw_band(data: xr.Dataset, quantity: str, axes: Axes) -> None:
    """Relative root mean squared error of one case against the layer, predicted (lines) and measured (marks), by length."""
    part = data.sel(quantity=quantity)
    lengths = [each for each in data.length.values if bool(np.isfinite(part.error.sel(length=each)).any())]
    layer = data.layer.values
    for i, length in enumerate(lengths):
        colour, marker = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]
        axes.plot(layer, np.sqrt(part.band.where(part.band > 0) / length), color=colour, lw=1.3)
        marked = part.sel(length=length, layer=layer[:: 2 if len(layer) > 13 else 1])  # every other mark, where they crowd
        root = np.sqrt(marked.error.where(marked.error > 0))
        spread = marked.standard_error / root  # 2 standard errors of the square are one of this
        axes.errorbar(
            marked.layer,
            root,
            yerr=spread,
            fmt=marker,
            color=colour,
            ms=3.4,
            lw=0.7,
            mec="0.2",
            mew=0.3,
            label=length_label(length),
        )
    if quantity == "token":
        axes.plot(layer, np.sqrt(data.independent.where(data.independent > 0) / lengths[-1]), color="0.45", lw=1.0, ls="--")
    axes.set_yscale("log")


def band_figure(data: xr.Dataset) -> Figure:
    """Token outputs and covariance against depth, one column for each size of V."""
    cases, quantities = shown_cases(data), ("token", "covariance")
    with house_style():
        figure = Figure(figsize=(2.15 * len(cases) + 0.4, 4.0))
        panels = figure.subplots(len(quantities), len(cases), squeeze=False, sharex=True, sharey="row")
        for row, quantity in zip(panels, quantities, strict=True):
            for axes, case in zip(row, cases, strict=True):
                draw_band(data.sel(case=case), quantity, axes)
            row[0].set_ylabel(NAMES[quantity])
        figure.supylabel("relative error, root mean square", fontsize=9)
        for axes, case in zip(panels[0], cases, strict=True):
            one = data.sel(case=case)
            axes.set_title(f"{SCALE_LABELS.get(str(one.value_scale.values), str(one.value_scale.values))}, {one.weights.values}")
        for axes in panels[-1]:
            axes.set_xlabel("layer")
            axes.set_xticks(np.unique(np.linspace(0, int(data.layer.max()), 5).astype(int)))
        longest = int(np.argmax([len(axes.get_legend_handles_labels()[0]) for axes in panels[0]]))
        handles, labels = panels[0, longest].get_legend_handles_labels()
        extra = [Line2D([], [], color="0.3", lw=1.3), Line2D([], [], color="0.45", lw=1.0, ls="--")]
        figure.legend(
            [*handles, *extra],
            [*labels, "predicted", "layers independent (longest)"],
            loc="outside lower center",
            ncols=4,
            fontsize=7.5,
        )
    return figure


def breaking_figure(data: xr.Dataset) -> Figure:
    """Score variance of the recursion with the edges of the linear regime; predicted against measured breaking layer."""
    scales = list(dict.fromkeys(str(each) for each in data.value_scale.values))
    none = int(data.layer.max()) + 1
    with house_style():
        figure = Figure(figsize=(7.4, 3.3))
        left, right = figure.subplots(1, 2)
        top = 4 * np.log(float(data.length.max()))
        for case in data.case.values:
            one = data.sel(case=case)
            i = scales.index(str(one.value_scale.values))
            style = DASHES[0] if str(one.weights.values) == "random" else DASHES[1]
            left.plot(data.layer + 1, one.score_variance.where(one.score_variance < 100 * top), color=COLOURS[i], ls=style, lw=1.0)
        for length in (data.length.values[0], data.length.values[-1]):
            edge = np.log(float(length)) / 2
            left.axhline(edge, color="0.4", lw=0.8, ls=":")
            left.text(1.0, edge * 1.06, length_label(float(length)), fontsize=7.5, color="0.3", va="bottom", ha="left")
        left.set(yscale="log", xlabel="layer $k$", ylabel=r"score variance $\sigma_k^2$, recursion", ylim=(None, top))
        random = np.random.default_rng(0)
        for i, scale in enumerate(scales):
            chosen = data.isel(case=np.flatnonzero(data.value_scale.values == scale))
            early, late = (np.fmin(chosen[name], chosen.predicted_crossing) for name in ("predicted_edge", "predicted_frozen"))
            predicted = ((early + late) / 2).values.ravel()
            measured = chosen.measured_breaking.values.ravel()
            known = np.isfinite(measured)
            jitter = random.uniform(-0.28, 0.28, size=(2, int(known.sum())))
            right.plot(
                predicted[known] + jitter[0],
                measured[known] + jitter[1],
                MARKERS[i],
                color=COLOURS[i],
                ms=4,
                mec="0.2",
                mew=0.3,
                alpha=0.8,
                label=SCALE_LABELS.get(scale, scale),
            )
        right.plot([1, none], [1, none], color="0.6", lw=0.8, zorder=0)
        ticks = sorted({1, *range(none // 4, none - 2, max(1, none // 4)), none})
        names = ["none" if each == none else str(each) for each in ticks]
        right.set_xticks(ticks, names)
        right.set_yticks(ticks, names)
        right.set(xlabel="layer at which closure should break", ylabel="layer at which it does")
        right.legend(fontsize=7.5, loc="lower right")
        handles = [Line2D([], [], color="0.3", ls=DASHES[0]), Line2D([], [], color="0.3", ls=DASHES[1])]
        left.legend(handles, ["random", "shared"], fontsize=7.5, loc=(0.45, 0.75), title="weights", title_fontsize=7.5)
    return figure


def normalised_figure(data: xr.Dataset) -> Figure:
    """Error of the closure against L with the predicted level, and level and kurtosis against the dimension."""
    kinds = list(dict.fromkeys(str(each) for each in data.kind.values))
    dims = sorted({int(each) for each in data.dim.values})
    titles = {"pre": "pre-norm", "sphere": "on the sphere"}
    with house_style():
        figure = Figure(figsize=(2.5 * (len(kinds) + 1) + 0.4, 3.0))
        panels = figure.subplots(1, len(kinds) + 1)
        if len(kinds) > 1:
            panels[1].sharey(panels[0])
        last = panels[-1]
        twin_handles = []
        for j, kind in enumerate(kinds):
            axes = panels[j]
            levels, bends = [], []
            for i, dim in enumerate(dims):
                one = data.isel(normalised=np.flatnonzero((data.kind.values == kind) & (data.dim.values == dim))[0])
                error = one.normalised_error.isel(layer=slice(1, None)).mean("layer")
                spread = np.sqrt((one.normalised_standard_error.isel(layer=slice(1, None)) ** 2).mean("layer"))
                level = one.level.isel(layer=slice(1, None)).mean("layer")
                root = np.sqrt(error)
                axes.errorbar(
                    data.normalised_length,
                    root,
                    yerr=spread / root,
                    fmt=MARKERS[i],
                    color=COLOURS[i],
                    ms=4,
                    lw=0.9,
                    label=f"$d={dim}$",
                )
                known = float(level) > 3 * float(one.level_error.isel(layer=slice(1, None)).mean())  # told from 0
                levels.append(float(np.sqrt(level)) if known else np.nan)
                if known:
                    axes.axhline(levels[-1], color=COLOURS[i], lw=1.1, ls=DASHES[1])
                bends.append(float(abs(one.normalised_kurtosis).isel(layer=slice(1, -1)).mean()))
            axes.set(xscale="log", yscale="log", xlabel="prompt length $L$", title=titles.get(kind, kind))
            axes.set_xticks(data.normalised_length.values, [str(each) for each in data.normalised_length.values])
            axes.set_xticks([], minor=True)
            axes.yaxis.set_minor_formatter(NullFormatter())
            (handle,) = last.plot(
                dims, levels, MARKERS[j] + "-", color=COLOURS[j], lw=1.0, label=f"level, {titles.get(kind, kind)}"
            )
            (bend,) = last.plot(
                dims, bends, MARKERS[j] + ":", color=COLOURS[j], lw=1.0, mfc="white", label=f"kurtosis, {titles.get(kind, kind)}"
            )
            twin_handles += [handle, bend]
        panels[0].set_ylabel("relative error of tokens")
        handles, labels = panels[0].get_legend_handles_labels()
        shown = [*handles, *twin_handles]
        figure.legend(
            shown, [*labels, *(each.get_label() for each in twin_handles)], loc="outside lower center", ncols=4, fontsize=7
        )
        last.set(xscale="log", yscale="log", xlabel="dimension $d$", title="closure at $L=\\infty$")
        last.set_xticks(dims, [str(each) for each in dims])
        last.set_xticks([], minor=True)
        last.yaxis.set_minor_formatter(NullFormatter())
    return figure
