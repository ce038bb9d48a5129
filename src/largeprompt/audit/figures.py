"""Heads of a real transformer: maps, regimes, read-out errors, and what replacing them does."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap, LogNorm, Normalize
from matplotlib.figure import Figure

from largeprompt.runs.style import COLOURS, MARKERS, house_style

FINDINGS = ("moments", "needs a longer prompt", "few clusters", "selects", "other shape")
TINTS = (COLOURS[0], COLOURS[4], COLOURS[1], COLOURS[5], COLOURS[3])
CURVES = {"audit": "audit's order, affine", "random": "random order, affine", "reverse": "reverse order, affine"} | {
    "mixture": "audit's order, mixture",
    "mean": "audit's order, mean only",
}


def _longest(data: xr.Dataset) -> xr.Dataset:
    return data.isel(length=-1) if "length" in data.dims else data


def audit_heads_figure(data: xr.Dataset) -> Figure:
    """Layer by head: verdict, score variance, effective tokens, affine error."""
    last = _longest(data)
    with house_style():
        height = float(np.clip(0.9 + 0.16 * last.sizes["layer"], 2.0, 6.0))
        figure = Figure(figsize=(7.2, 2 * height))
        axes = figure.subplots(2, 2).ravel()
        panels = (
            ("head_finding", "verdict", BoundaryNorm(np.arange(-0.5, 5), 5), ListedColormap(TINTS)),
            ("head_score_variance", r"score variance $\sigma^2$", LogNorm(), "cividis"),
            ("head_effective_tokens", "effective tokens", LogNorm(), "cividis"),
            ("head_affine_error", "affine error over output", Normalize(0, 1), "cividis_r"),
        )
        for panel, (name, title, norm, cmap) in zip(axes, panels, strict=True):
            values = last[name].transpose("layer", "head").values.astype(float)
            values = np.where(values < 0, np.nan, values) if name == "head_finding" else values
            image = panel.imshow(values, norm=norm, cmap=cmap, aspect="auto", origin="lower", interpolation="nearest")
            panel.set(title=title, xlabel="head", ylabel="layer")
            panel.grid(False)
            for axis, labels in ((panel.xaxis, last["head"].values), (panel.yaxis, last.layer.values)):
                step = -(-len(labels) // 12)
                axis.set_ticks(np.arange(0, len(labels), step), [str(label) for label in labels[::step]])
            bar = figure.colorbar(image, ax=panel, extend="max" if name == "head_affine_error" else "neither")
            if name == "head_finding":
                bar.set_ticks(range(5), labels=["moments", "longer\nprompt", "few\nclusters", "selects", "other\nshape"])
                bar.ax.tick_params(labelsize=7, length=0)
        return figure


def regimes_figure(data: xr.Dataset) -> Figure:
    """Score variance against ln L with the lines between the regimes; and affine error against score variance."""
    many = data if "length" in data.dims else data.expand_dims("length")
    with house_style():
        figure = Figure(figsize=(7.2, 3.6))
        left, right = figure.subplots(1, 2)
        logarithm = np.log(many.head_tokens)
        # heads of one length side by side, so that they do not hide each other
        spread = xr.DataArray(np.linspace(-0.12, 0.12, many.sizes["head"]), dims="head")
        x, y = xr.broadcast(logarithm + spread, many.head_score_variance)
        code = many.head_finding.transpose(*x.dims).values
        for index, (name, tint) in enumerate(zip(FINDINGS, TINTS, strict=True)):
            chosen = code == index
            if chosen.any():
                left.plot(x.values[chosen], y.values[chosen], MARKERS[index], color=tint, ms=3.5, alpha=0.8, label=name)
                error = many.head_affine_error.transpose(*x.dims).values[chosen]
                right.plot(y.values[chosen], error, MARKERS[index], color=tint, ms=3.5, alpha=0.8)
        grid = np.linspace(float(logarithm.min()) - 0.5, float(logarithm.max()) + 0.5, 50)
        left.plot(grid, grid / 2, "-", color="0.3", lw=1, label=r"$L=e^{2\sigma^2}$: linear below")
        left.plot(grid, 2 * grid, "--", color="0.3", lw=1, label=r"$L=e^{\sigma^2/2}$: frozen above")
        left.set(yscale="log", xlabel=r"$\ln L$ (heads side by side)", ylabel=r"score variance $\sigma^2$", title="regimes")
        figure.legend(*left.get_legend_handles_labels(), fontsize=7, loc="outside lower center", ncols=3)
        right.axhline(float(data.attrs.get("tolerance", 0.2)), color="0.3", lw=1, ls=":")
        right.set(
            xscale="log",
            yscale="log",
            xlabel=r"score variance $\sigma^2$",
            ylabel="affine error over output",
            title="error of the affine read-out",
        )
        return figure


def readouts_figure(data: xr.Dataset) -> Figure:
    """Error of the read-outs, from the mean alone over the cumulant ladder to many clusters, by verdict; and the law's share."""
    last = _longest(data)
    sizes = sorted(
        int(str(name).split("_")[2]) for name in last if str(name).startswith("head_mixture_") and str(name).endswith("_error")
    )
    names = ["mean", "affine", "third", "fourth", *(f"mixture_{size}" for size in sizes)]
    labels = ["mean", "affine", "+ 3rd", "+ 4th", *(f"{size} comp." for size in sizes)]
    with house_style():
        figure = Figure(figsize=(7.2, 3.2))
        left, right = figure.subplots(1, 2, width_ratios=(1.4, 1))
        places = np.arange(len(names), dtype=float)
        code = last.head_finding.values
        for index, (finding, tint) in enumerate(zip(FINDINGS, TINTS, strict=True)):
            chosen = code == index
            if not chosen.any():
                continue
            values = np.stack([last[f"head_{name}_error"].values[chosen] for name in names])
            middle, low, high = (np.nanquantile(values, q, axis=1) for q in (0.5, 0.25, 0.75))
            shift = 0.12 * (index - 2)
            bars = np.stack([middle - low, high - middle])
            left.errorbar(
                places + shift, middle, bars, fmt=MARKERS[index], color=tint, ms=4, lw=1, label=f"{finding} ({int(chosen.sum())})"
            )
        left.set_xticks(places, labels, rotation=35, ha="right")
        left.set(yscale="log", ylabel="error over output", title="read-outs (median and quartiles over heads)")
        figure.legend(*left.get_legend_handles_labels(), fontsize=7, loc="outside lower center", ncols=3)
        _share(right, last)
        return figure


def _share(axes: Axes, last: xr.Dataset) -> None:
    code = last.head_finding.values
    for index, tint in enumerate(TINTS):
        chosen = code == index
        if chosen.any():
            x, y = last.head_law_error.values[chosen], last.head_affine_error.values[chosen]
            axes.plot(x, y, MARKERS[index], color=tint, ms=3.5, alpha=0.8)
    both = np.concatenate([last.head_law_error.values.ravel(), last.head_affine_error.values.ravel()])
    ends = [float(np.nanmin(both[both > 0])), float(np.nanmax(both))]
    axes.plot(ends, ends, "-", color="0.3", lw=1)
    axes.set(xscale="log", yscale="log", xlabel="expected by the exact law", ylabel="measured", title="affine error")


def replacement_figure(data: xr.Dataset) -> Figure:
    """Effect on the model's output against the number of heads replaced, for each order and read-out."""
    language = bool(data.kl.notnull().any())
    with house_style():
        figure = Figure(figsize=(7.2, 3.1))
        panels = figure.subplots(1, 2, squeeze=False)[0]
        for index, (name, label) in enumerate(CURVES.items()):
            if name not in data.curve:
                continue
            one = data.sel(curve=name)
            label += f" of {int(data.mixture_components)}" if name == "mixture" else ""
            panels[0].plot(one.replaced, 1 - one.cosine, "-" + MARKERS[index], color=COLOURS[index], label=label)
            if language:
                panels[1].plot(one.replaced, one.kl, "-" + MARKERS[index], color=COLOURS[index])
        panels[0].set(yscale="log", xlabel="heads replaced", ylabel="1 - cosine of the embeddings")
        if language:
            panels[1].set(yscale="log", xlabel="heads replaced", ylabel="KL divergence of the next token")
        handles, labels = panels[0].get_legend_handles_labels()
        if language:
            panels[0].legend(fontsize=7)
        else:
            panels[1].set_axis_off()
            panels[1].legend(handles, labels, loc="center left")
        return figure
