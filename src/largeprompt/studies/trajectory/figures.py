"""Training on long prompts: the tube, the paths of the parameters, and the excess risk against L."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from largeprompt.runs.style import COLOURS, MARKERS, house_style, length_label

ATTENTIONS = ("softmax", "linear")


def tube_figure(data: xr.Dataset) -> Figure:
    """Distance to the infinite-prompt flow: in time, with its envelope, for softmax; its supremum against L for both attentions."""
    with house_style():
        figure = Figure(figsize=(7.6, 3.2))
        left, right = figure.subplots(1, 2)
        shown = data.isel(time=slice(1, None))
        for i, length in enumerate(data.length.values):
            colour = COLOURS[i % len(COLOURS)]
            distance, envelope = (shown[f"softmax_{name}"].isel(length=i) for name in ("distance", "envelope"))
            left.plot(shown.time, distance, color=colour, label=length_label(length))
            left.plot(shown.time, envelope, color=colour, ls=":")
        left.plot([], [], color="0.3", ls=":", label="Grönwall envelope")
        left.set(
            xscale="log", yscale="log", xlabel="time $t$", ylabel=r"$\|\theta_L(t)-\theta_\infty(t)\|$", title="softmax attention"
        )
        left.set_ylim(bottom=1e-5)
        left.legend(fontsize=7, ncols=2)
        for i, kind in enumerate(ATTENTIONS):
            sup, bound = (data[f"{kind}_{name}"].max("time") for name in ("distance", "envelope"))
            right.plot(data.length, sup, MARKERS[i] + "-", color=COLOURS[i], label=kind)
            right.plot(data.length, bound, MARKERS[i] + ":", color=COLOURS[i], mfc="none", label=f"{kind}, envelope")
        x = data.length.values.astype(float)
        y = float(data.linear_distance.max("time")[-1])
        right.plot(x, y * x[-1] / x, color="0.6", lw=0.9, ls="--", label="slope $-1$")
        right.set(xscale="log", yscale="log", xlabel="prompt length $L$", ylabel=r"$\sup_t\,\|\theta_L-\theta_\infty\|$")
        right.set_title(f"up to $t={float(data.time[-1]):g}$")
        right.legend(fontsize=7.5)
    return figure


def parameters_figure(data: xr.Dataset) -> Figure:
    """The read-out b and the first entries of A along training, softmax and linear attention, several lengths."""
    names = [name for name in ("A[0, 0]", "A[0, 1]", "b") if name in data.parameter.values]
    with house_style():
        figure = Figure(figsize=(7.6, 2.8))
        panels = figure.subplots(1, len(names), squeeze=False)[0]
        chosen = sorted({0, len(data.length) // 3, 2 * len(data.length) // 3})
        for axes, name in zip(panels, names, strict=True):
            for i in chosen:
                for kind, dash in zip(ATTENTIONS, ("-", "--"), strict=True):
                    path = data[f"{kind}_theta"].sel(parameter=name).isel(length=i)
                    axes.plot(
                        data.time,
                        path,
                        dash,
                        color=COLOURS[chosen.index(i)],
                        label=f"{length_label(data.length.values[i])}, {kind}",
                    )
            axes.plot(
                data.time,
                data.softmax_limit_theta.sel(parameter=name),
                color="black",
                lw=2.2,
                alpha=0.45,
                label=length_label(np.inf),
            )
            title = "$b$" if name == "b" else f"$A_{{{int(name[2]) + 1}{int(name[5]) + 1}}}$"
            axes.set(xlabel="time $t$", title=title, xlim=(0, min(8.0, float(data.time[-1]))))
        panels[0].legend(fontsize=6.5, loc="lower right")
    return figure


def excess_figure(data: xr.Dataset) -> Figure:
    """Excess risk against L for identity covariance, at the optimum of each length and at the infinite-prompt endpoint."""
    with house_style():
        figure = Figure(figsize=(7.6, 3.2))
        left, right = figure.subplots(1, 2, sharey=True)
        for i, d in enumerate(data.dim.values):
            row, colour = data.sel(dim=d), COLOURS[i % len(COLOURS)]
            left.plot(row.excess_length, row.softmax_best, color=colour, label=f"$d={d}$")
            left.plot(row.excess_length, row.linear_best, color=colour, ls="--")
            right.plot(
                row.excess_length,
                row.softmax_at_limit_endpoint,
                color=colour,
                marker=MARKERS[i % len(MARKERS)],
                ms=3,
                label=f"$d={d}$",
            )
        left.plot([], [], color="0.3", label="softmax")
        left.plot([], [], color="0.3", ls="--", label="linear")
        x = data.excess_length.values.astype(float)
        right.plot(x, 30 / x, color="0.6", lw=0.9, ls="--", label="slope $-1$")
        left.set(title="trained to the optimum of its length", ylabel="excess risk")
        right.set(title="softmax at the infinite-prompt endpoint")
        for axes in (left, right):
            axes.set(xscale="log", yscale="log", xlabel="prompt length $L$")
            axes.legend(fontsize=7.5)
    return figure
