"""Softmax against linear attention: regression, several heads, and the tasks where the answer turns round."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from largeprompt.runs.style import COLOURS, DASHES, MARKERS, house_style, length_label

TOP = 1.3  # of the axis of excesses over linear attention


def regression_map_figure(data: xr.Dataset) -> Figure:
    """Excess of one head over linear attention: against L for each dimension, and its limit against d for each noise level."""
    ratio = data.softmax_best / data.linear_best
    with house_style():
        figure = Figure(figsize=(7.6, 3.2))
        left, right = figure.subplots(1, 2)
        for i, d in enumerate(data.dim.values):
            colour = COLOURS[i % len(COLOURS)]
            row = ratio.sel(dim=d).isel(noise=0)
            left.plot(row.length, row, MARKERS[i % len(MARKERS)] + "-", color=colour, ms=3.5, label=f"$d={int(d)}$")
            left.axhline(float(data.limit_ratio.sel(dim=d).isel(noise=0)), color=colour, lw=0.8, ls=":")
        left.plot([], [], color="0.3", lw=0.8, ls=":", label="predicted limit")
        left.axhline(1.0, color="0.2", lw=0.9)
        left.set(xscale="log", xlabel="prompt length $L$", ylabel="excess risk, one head / linear")
        left.set_title(f"$s^2={float(data.noise[0]):g}$, identity covariance")
        left.legend(fontsize=7)
        longest = ratio.isel(length=-1)
        for j, noise in enumerate(data.noise.values):
            colour = COLOURS[j % len(COLOURS)]
            right.plot(
                data.dim,
                data.limit_ratio.sel(noise=noise),
                ls=DASHES[j % len(DASHES)],
                color=colour,
                label=f"$s^2={float(noise):g}$",
            )
            right.plot(data.dim, longest.sel(noise=noise), MARKERS[j % len(MARKERS)], color=colour, mfc="none", ms=5)
        right.plot(data.dim, data.noise_limit, color="0.6", lw=0.8, label=r"$(1+2/d)^{1+d/2}$")
        right.axhline(np.e, color="0.2", lw=0.8, ls=":")
        right.text(float(data.dim[0]), np.e * 1.01, r"$e$", fontsize=8, va="bottom")
        right.plot([], [], "o", color="0.3", mfc="none", label=f"exact, {length_label(float(data.length[-1]))}")
        right.set(xscale="log", xlabel="dimension $d$", title="long prompts: predicted and exact")
        right.set_xticks(data.dim.values, [f"{int(d)}" for d in data.dim.values])
        right.set_xticks([], minor=True)
        right.legend(fontsize=7)
    return figure


def heads_figure(data: xr.Dataset) -> Figure:
    """Excess of 1, 2, 4 and 8 heads relative to linear attention, one panel for each dimension; dashed: tilts that vanish."""
    share = (data.heads_excess / data.heads_linear).isel(head_noise=0)
    vanishing = (data.heads_vanishing / data.heads_linear).isel(head_noise=0)
    with house_style():
        count = data.sizes["head_dim"]
        figure = Figure(figsize=(2.6 * count, 3.0))
        panels = figure.subplots(1, count, squeeze=False, sharey=True)[0]
        for axes, d in zip(panels, data.head_dim.values, strict=True):
            line = vanishing.sel(head_dim=d)
            axes.plot(line.head_length, line, color="0.5", lw=1.0, ls="--", label="linear, $L-1$ tokens")
            for i, heads in enumerate(data.heads.values):
                row = share.sel(head_dim=d, heads=heads).dropna("head_length")
                if row.size and float(row.min()) < TOP:
                    label = "one head" if heads == 1 else f"{int(heads)} heads"
                    axes.plot(row.head_length, row, MARKERS[i] + "-", color=COLOURS[i], ms=3.5, lw=1.0, label=label)
            axes.axhline(1.0, color="0.2", lw=0.9)
            axes.set(xscale="log", xlabel="prompt length $L$", title=f"$d={int(d)}$", ylim=(0.93, TOP), xlim=(1.6, 3e3))
        panels[0].set_ylabel("excess risk / linear attention")
        panels[-1].legend(fontsize=7, loc="upper right")
    return figure


def selection_map_figure(data: xr.Dataset) -> Figure:
    """Three tasks where the answer turns round, each with its predicted line."""
    with house_style():
        figure = Figure(figsize=(9.6, 3.3))
        first, second, third = figure.subplots(1, 3)
        _location(data, first)
        _outliers(data, second)
        _shifts(data, third)
    return figure


def _location(data: xr.Dataset, axes: Axes) -> None:
    for i, length in enumerate(data.location_length.values):
        colour = COLOURS[i % len(COLOURS)]
        row = data.sel(location_length=length)
        shown = row.sel(spike=row.spike > 0)
        axes.plot(
            shown.spike, shown.location_softmax, MARKERS[i % len(MARKERS)], color=colour, ms=4, label=length_label(float(length))
        )
        axes.plot(shown.spike, shown.location_annealed, color=colour, lw=1.0)
        axes.plot(shown.spike, shown.location_linear, color=colour, lw=0.9, ls="--")
        axes.plot([float(row.location_threshold)], [0.5], "|", color=colour, ms=12, mew=1.6)
    axes.plot([], [], color="0.3", lw=1.0, label="softmax, predicted")
    axes.plot([], [], color="0.3", lw=0.9, ls="--", label="linear")
    axes.plot([], [], "|", color="0.3", ms=9, mew=1.6, label=r"$\nu=2\ln L$")
    axes.set(
        xscale="log", xlabel=r"spike $\nu$", ylabel="share of the answer read", title="one informative token", ylim=(-0.03, 1.28)
    )
    axes.legend(fontsize=6.2, ncols=3, loc="upper left", columnspacing=0.8, handletextpad=0.4)


def _outliers(data: xr.Dataset, axes: Axes) -> None:
    predicted = data.outlier_predicted.isel(outlier_length=0)
    axes.plot(data.outlier_share, predicted, color="0.2", lw=1.4, label="predicted, long prompts")
    for i, length in enumerate(data.outlier_length.values):
        row = data.outlier_crossing.sel(outlier_length=length)
        axes.plot(
            row.outlier_share, row, MARKERS[i % len(MARKERS)], color=COLOURS[i % len(COLOURS)], label=length_label(float(length))
        )
    axes.text(0.97, 0.56, "softmax wins", transform=axes.transAxes, fontsize=8, ha="right", color="0.3")
    axes.text(0.05, 0.1, "linear wins", transform=axes.transAxes, fontsize=8, color="0.3")
    axes.set(
        xscale="log", yscale="log", xlabel="share of outliers $p$", ylabel=r"crossing variance $\tau^2$", title="marked outliers"
    )
    shares = data.outlier_share.values
    axes.set_xticks(shares, [f"{share:g}" for share in shares])
    axes.set_xticks([], minor=True)
    axes.legend(fontsize=7, loc="upper right")


def _shifts(data: xr.Dataset, axes: Axes) -> None:
    """Relative excesses at a small and a large shift; the pair's hardly depends on it, so that it is drawn once."""
    row, chosen = data.isel(shift_dim=-1), (data.sizes["shift_variance"] // 3, -1)
    for i, reader in enumerate(row.reader.values):
        for dash, index in zip(("-", "--"), chosen, strict=True):
            part = row.shift_excess.sel(reader=reader).isel(shift_variance=index)
            label = str(reader) if reader == "pair" else f"{reader}, $\\tau^2={float(part.shift_variance):g}$"
            if reader != "pair" or dash == "-":
                axes.plot(part.shift_length, part, MARKERS[i] + dash, color=COLOURS[i], ms=3.5, lw=1.0, label=label)
    for dash, index in zip(("-", "--"), chosen, strict=True):
        axes.axvline(float(row.shift_crossing[index]), color="0.55", lw=0.9, ls=dash)
    axes.plot([], [], color="0.55", lw=0.9, label="predicted crossing")
    axes.set(xscale="log", yscale="log", xlabel="prompt length $L$", ylabel="excess / signal variance")
    axes.set_title(f"prompts with their own mean, $d={int(row.shift_dim)}$")
    axes.legend(fontsize=6.5, loc="lower left")
