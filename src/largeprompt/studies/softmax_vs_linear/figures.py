"""Softmax against linear attention: regression, several heads, and where the answer turns round."""

import math

import xarray as xr

from largeprompt.runs.style import (
    COLORS,
    DASHES,
    Axes,
    curves,
    describe,
    entry,
    length_label,
    look,
    panels,
    study_figure,
    ticks,
)


def _location(data: xr.Dataset, axes: Axes) -> None:
    for i, length, row in curves(data, "location_length"):
        shown = row.sel(spike=row.spike > 0)
        label = length_label(float(length))
        axes.plot(shown.spike, shown.location_softmax, ls="none", ms=4, label=label, **look(i))
        axes.plot(shown.spike, shown.location_annealed, color=COLORS[i], lw=1.0)
        axes.plot(shown.spike, shown.location_linear, color=COLORS[i], lw=0.9, ls="--")
        axes.plot([float(row.location_threshold)], [0.5], "|", color=COLORS[i], ms=12, mew=1.6)
    entry(axes, "softmax, predicted")
    entry(axes, "linear", ls="--")
    entry(axes, r"$\nu=2\ln L$", marker="|", ls="none", ms=9, mew=1.6)
    words = (r"spike $\nu$", "share of the answer read", "one informative token")
    describe(axes, *words, log="x", legend=7, below=2)


def _outliers(data: xr.Dataset, axes: Axes) -> None:
    shares = data.outlier_share.values
    axes.plot(shares, data.outlier_predicted, "_-", color="0.2", label="predicted, long prompts")
    for i, length, row in curves(data.outlier_crossing, "outlier_length"):
        axes.plot(shares, row, ls="none", label=length_label(float(length)), **look(i))
    for x, y, side, word in ((0.95, 0.9, "right", "softmax"), (0.05, 0.08, "left", "linear")):
        axes.text(x, y, f"{word} wins", transform=axes.transAxes, fontsize=8, ha=side, color="0.3")
    words = ("share of outliers $p$", r"crossing variance $\tau^2$", "marked outliers")
    describe(axes, *words, log="xy", legend=7, below=2)
    ticks(axes, "x", shares)


def _shifts(data: xr.Dataset, axes: Axes) -> None:
    """Excesses at each shift; that of a pair does not depend on it."""
    row = data.isel(shift_dim=-1)
    for i, tau, part in curves(row, "shift_variance"):
        label = rf"linear, $\tau^2={tau:g}$"
        axes.plot(data.shift_length, part.shift_linear, label=label, **look(i, ms=3.5, lw=1.0))
        axes.axvline(float(part.shift_crossing), color=COLORS[i], lw=0.8, ls=":")
    axes.plot(data.shift_length, row.shift_pair, color="0.2", lw=1.3, label="pair of heads")
    entry(axes, "predicted crossing", lw=0.8, ls=":")
    title = f"prompts with their own mean, $d={int(row.shift_dim)}$"
    words = ("prompt length $L$", "excess / signal variance", title)
    describe(axes, *words, log="xy", legend=7, below=2)


selection = panels(
    "selection",
    "Where softmax wins. One informative token among L: share of the answer read, exact (marks), "
    "predicted (lines), linear attention (dashed). Marked outliers: the variance above which "
    "softmax wins. Prompts with a mean of their own: a pair of softmax heads wins from the "
    "predicted lengths (dotted).",
    _location,
    _outliers,
    _shifts,
    size=(9.6, 3.9),
    cards={"Q1": 0},
)


@study_figure(
    "regression",
    "Where it does not: excess risk of the best softmax head over that of linear attention in "
    "in-context regression, against L with predicted limits, and for long prompts against d.",
    size=(7.6, 3.7),
)
def regression(data: xr.Dataset, left: Axes, right: Axes) -> None:
    """Excess of one head over linear attention: against L, and its limit against d."""
    ratio, dims = data.softmax_best / data.linear_best, data.dim.values
    for i, d in enumerate(dims):
        row = ratio.sel(dim=d).isel(noise=0)
        left.plot(row.length, row, ls="-", ms=3.5, label=f"$d={int(d)}$", **look(i))
        limit = float(data.limit_ratio.sel(dim=d).isel(noise=0))
        left.axhline(limit, color=COLORS[i], lw=0.8, ls=":")
    entry(left, "predicted limit", lw=0.8, ls=":")
    left.axhline(1.0, color="0.2", lw=0.9)
    title = f"$s^2={data.noise[0]:g}$, identity covariance"
    words = ("prompt length $L$", "excess risk, one head / linear", title)
    describe(left, *words, log="x", legend=7, below=4)
    for j, noise in enumerate(data.noise.values):
        limit, label = data.limit_ratio.sel(noise=noise), f"$s^2={noise:g}$"
        right.plot(dims, limit, ls=DASHES[j], color=COLORS[j], label=label)
        last = ratio.isel(length=-1).sel(noise=noise)
        right.plot(dims, last, ls="none", mfc="none", ms=5, **look(j))
    right.plot(dims, data.noise_limit, color="0.6", lw=0.8, label=r"$(1+2/d)^{1+d/2}$")
    right.axhline(math.e, color="0.2", lw=0.8, ls=":")
    right.text(float(dims[0]), math.e * 1.01, r"$e$", fontsize=8, va="bottom")
    label = f"exact, {length_label(float(data.length[-1]))}"
    entry(right, label, marker="o", ls="none", mfc="none")
    words = ("dimension $d$", "", "long prompts: predicted and exact")
    describe(right, *words, log="x", legend=7, below=3)
    ticks(right, "x", dims)


@study_figure(
    "heads",
    "Excess risk of a pair of softmax heads with opposite tilts, relative to linear attention; "
    "dashed: vanishing tilts, which are linear attention over one token less.",
    size=lambda data: (2.6 * data.sizes["pair_dim"], 3.0),
    panels=lambda data: (1, data.sizes["pair_dim"]),
    sharey=True,
)
def heads(data: xr.Dataset, *every: Axes) -> None:
    """Excess of a pair relative to linear attention, one panel for each dimension."""
    parts = (data.pair_best, data.pair_vanishing)
    two, vanishing = ((part / data.pair_linear).isel(pair_noise=0) for part in parts)
    for axes, d in zip(every, data.pair_dim.values, strict=True):
        x, label = data.pair_length, "linear, $L-1$ tokens"
        axes.plot(x, vanishing.sel(pair_dim=d), color="0.5", lw=1.0, ls="--", label=label)
        axes.plot(x, two.sel(pair_dim=d), label="pair of heads", **look(1, ms=3.5, lw=1.0))
        axes.axhline(1.0, color="0.2", lw=0.9)
        describe(axes, "prompt length $L$", "", f"$d={int(d)}$", log="x")
        axes.set(ylim=(0.93, 1.3), xlim=(1.6, 3e3))
    every[0].set_ylabel("excess risk / linear attention")
    handles = every[0].get_legend_handles_labels()
    every[0].figure.legend(*handles, fontsize=7, loc="outside lower center", ncols=3)


FIGURES = (selection, regression, heads)
