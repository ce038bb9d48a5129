"""Transformers trained here: their risk beside the exact theory of one layer, and what the audit says of their heads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from largeprompt.runs.style import COLOURS, MARKERS, house_style

THEORY = (
    ("softmax_optimum", "best single head", "-"),
    ("carried", "head best for training", "--"),
    ("linear_optimum", "best linear attention", "-."),
    ("bayes", "Bayes", ":"),
)
KINDS = {"attention": "bare attention", "blocks": "real blocks"}
CHANGES = {
    "affine": "all:\naffine",
    "affine at the query": "all at query:\naffine",
    "moments heads": "'moments':\naffine",
    "other heads": "others:\naffine",
    "mean": "all:\nmean",
}
MOST = 20.0  # times the risk
TOLERANCE = 0.2  # of the audit's rule
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


def _genuine(data: xr.Dataset) -> xr.Dataset:
    """Models trained on true prompts, the shallow ones first."""
    chosen = np.flatnonzero(~data.shuffled.values.astype(bool))
    order = sorted(chosen, key=lambda i: (str(data.kind.values[i]), int(data.layers.values[i]), int(data.heads.values[i])))
    return data.isel(model=order)


def _name(model: xr.Dataset) -> str:
    layers, heads = int(model.layers), int(model.heads)
    return f"{layers} layer{'s' if layers > 1 else ''}, {heads} head{'s' if heads > 1 else ''}"


def _look(index: int) -> dict[str, Any]:
    return {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)], "mfc": "none"}


def trained_risk_figure(data: xr.Dataset) -> Figure:
    """Excess risk on fresh prompts against L, one panel for each kind of model, over the exact curves."""
    models = _genuine(data)
    kinds = [kind for kind in KINDS if kind in models.kind.values]
    with house_style():
        figure = Figure(figsize=(7.6, 3.7))
        panels = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
        for axes, kind in zip(panels, kinds, strict=True):
            theory = [
                axes.plot(data.length, data[name] - data.floor, dash, color="0.25", lw=1.1, label=label)[0]
                for name, label, dash in THEORY
            ]
            axes.axvspan(float(data.training_length.min()), float(data.training_length.max()), color="0.93", zorder=0)
            marks = []
            for index in np.flatnonzero(models.kind.values == kind).tolist():
                model = models.isel(model=index)
                mean, error = _over_runs(model.risk - data.floor)
                marks.append(axes.errorbar(data.length, mean, error, ls="none", capsize=2, label=_name(model), **_look(index)))
            axes.set(xscale="log", yscale="log", xlabel="prompt length $L$", title=KINDS[kind])
            axes.set_xticks(data.length.values, [f"{int(each)}" for each in data.length])
            axes.set_xticks([], minor=True)
            axes.legend(handles=marks, fontsize=7.5, loc="lower left")
        panels[0].set_ylabel("risk above the noise, $R_L-s^2/2$")
        figure.legend(handles=theory, loc="outside lower center", ncols=len(THEORY), fontsize=8)
    return figure


def trained_heads_figure(data: xr.Dataset) -> Figure:
    """Alpha along training; affine error and what the exact law explains of it against alpha; the risk with heads replaced."""
    models = _genuine(data)
    longest = int(data.training_length.max())
    with house_style():
        figure = Figure(figsize=(7.6, 6.2))
        (along, end), (change, law) = figure.subplots(2, 2)
        handles = []
        for index in range(models.sizes["model"]):
            model = models.isel(model=index)
            name = f"{KINDS[str(model.kind.values)]}, {_name(model)}"
            steps = np.maximum(model.step.values, model.step.values[1:2].max(initial=1) / 3)  # 0 has no logarithm
            handles += along.plot(steps, model.alpha.median(["run", "layer", "head"]), label=name, **_look(index))
            last = model.isel(checkpoint=-1)
            for axes, values in ((end, last.affine_error), (law, last.law_share)):
                axes.plot(last.alpha.values.ravel(), values.values.ravel(), ls="none", **_look(index))
            _changes(change, model, index, models.sizes["model"])
        alone = np.flatnonzero(models.model.values == "attention 1x1")
        if len(alone) and longest in data.length.values:
            along.axhline(float(data.carried_alpha.sel(length=longest)), color=handles[alone[0]].get_color(), lw=0.9, ls="--")
        for border in (0.5, 1.0):
            along.axhline(border, color="0.5", lw=0.8, ls=":")
            end.axvline(border, color="0.5", lw=0.8, ls=":")
            law.axvline(border, color="0.5", lw=0.8, ls=":")
        law.axhline(1.0, color="0.5", lw=0.8)
        end.axhline(TOLERANCE, color="0.5", lw=0.8)
        change.axhline(1.0, color="0.5", lw=0.8)
        along.set(xscale="log", xlabel="training steps (leftmost: none)", ylabel=r"median of $\alpha=\sigma/\sqrt{2\ln L}$")
        end.set(yscale="log", xlabel=r"$\alpha$ of a head after training", ylabel="affine read-out: error / output")
        law.set(xlabel=r"$\alpha$ of a head after training", ylabel="exact law's error² / error²", ylim=(0, None))
        change.set(yscale="log", xlabel="heads replaced", ylabel="risk / risk with softmax")
        change.set_xticks(range(len(CHANGES)), list(CHANGES.values()), fontsize=7)
        for axes in (end, change):
            low, high = axes.get_ylim()
            ticks = [each for each in TICKS if low <= each <= high]
            axes.set_yticks(ticks, [f"{each:g}" for each in ticks])
            axes.set_yticks([], minor=True)
        figure.legend(
            handles=handles,
            loc="outside lower center",
            ncols=2,
            fontsize=7.5,
            title=f"audited at the query, $L={longest}$",
            title_fontsize=8,
        )
    return figure


def _over_runs(values: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Mean over trainings and its standard error."""
    return values.mean("run"), values.std("run", ddof=1) / math.sqrt(values.sizes["run"])


def _changes(axes: Axes, model: xr.Dataset, index: int, count: int) -> None:
    """Median and range over trainings; what has run away stays at the upper edge."""
    ratio = (model.replaced_risk / model.replaced_risk.sel(replaced="softmax")).sel(replaced=list(CHANGES)).clip(max=MOST)
    middle = ratio.median("run")
    places = np.arange(len(CHANGES)) + 0.7 * ((index + 0.5) / count - 0.5)
    reach = np.stack([middle - ratio.min("run"), ratio.max("run") - middle])
    axes.errorbar(places, middle, reach, ls="none", capsize=1.5, **_look(index))
