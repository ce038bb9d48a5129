"""Trained transformers: risk beside the exact theory of one layer, and what the audit says."""

import math
from typing import Any

import numpy as np
import xarray as xr

from largeprompt.runs.style import Axes, curves, describe, look, marks, study_figure, ticks

THEORY = (
    ("softmax_optimum", "best single head", "-"),
    ("carried", "head best for training", "--"),
    ("linear_optimum", "best linear attention", "-."),
    ("bayes", "Bayes", ":"),
)
KINDS = {"attention": "bare attention", "blocks": "real blocks"}
MOST = 20.0  # times the risk: more is drawn there


def shown_models(data: xr.Dataset) -> xr.Dataset:
    """Models trained on true prompts, the shallow ones first; all where there is none."""
    genuine = ~data.shuffled.values.astype(bool)
    kept = data.isel(model=np.flatnonzero(genuine if genuine.any() else ~genuine))
    return kept.isel(model=np.lexsort((kept.heads, kept.layers, kept.kind)))


def name(model: xr.Dataset) -> str:
    """Layers and heads of a model in words."""
    layers, heads = int(model.layers), int(model.heads)
    return f"{layers} layer{'s' * (layers > 1)}, {heads} head{'s' * (heads > 1)}"


@study_figure(
    "trained_risk",
    "Risk above the noise of trained transformers on fresh prompts (marks, mean and standard "
    "error), over the exact curves of one layer and the Bayes risk. Gray: lengths of training.",
    size=(7.6, 3.7),
    panels=lambda data: (1, len(set(shown_models(data).kind.values))),
    sharey=True,
)
def risk(data: xr.Dataset, *panels: Axes) -> None:
    """Excess risk against L, one panel for each kind of model, over the exact curves."""
    models, figure = shown_models(data), panels[0].figure
    trained = data.training_length.values
    for axes, kind in zip(panels, dict.fromkeys(models.kind.values), strict=True):
        theory = [
            axes.plot(data.length, data[each] - data.floor, dash, color="0.25", lw=1.1, label=label)
            for each, label, dash in THEORY
        ]
        axes.axvspan(trained.min(), trained.max(), color="0.93", zorder=0)
        drawn = []
        for i, _, model in curves(models, "model"):
            if model.kind.values == kind:
                over = model.risk - data.floor
                error = over.std("run", ddof=1) / math.sqrt(over.sizes["run"])
                mean, words = over.mean("run"), name(model)
                drawn.append(marks(axes, i, data.length, mean, error, words, mfc="none"))
        describe(axes, "prompt length $L$", "", KINDS[str(kind)], log="xy")
        ticks(axes, "x", data.length.values)
        axes.legend(handles=drawn, fontsize=7.5, loc="lower left")
    panels[0].set_ylabel("risk above the noise, $R_L-s^2/2$")
    handles = [line for (line,) in theory]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(THEORY), fontsize=8)


@study_figure(
    "trained_heads",
    "Heads of trained transformers at the query token. Left: median alpha along training; dashed: "
    "predicted by the exact optimum of one head. Middle: error of the affine read-out. Right: risk "
    "after all heads are replaced by their affine read-out, or by the mean (median and range, 20 "
    "or more at the edge). Dotted: borders of the regimes.",
    size=(9.6, 3.9),
    panels=(1, 3),
)
def heads(data: xr.Dataset, along: Axes, end: Axes, change: Axes) -> None:
    """Alpha along training, affine errors against alpha, and the risk with heads replaced."""
    models, kinds = shown_models(data), ("affine", "mean")
    length, handles = int(data.training_length.max()), []
    for i, _, model in curves(models, "model"):
        words = f"{KINDS[str(model.kind.values)]}, {name(model)}"
        # 0 has no logarithm
        steps = np.maximum(model.step.values, model.step.values[1:2].max(initial=1) / 3)
        alpha = model.alpha.median(["run", "layer", "head"])
        handles += along.plot(steps, alpha, label=words, **look(i, mfc="none"))
        last = model.isel(checkpoint=-1)
        points = [each.values.ravel() for each in (last.alpha, last.affine_error)]
        end.plot(*points, **look(i, ls="none", mfc="none"))
        ratio = model.replaced_risk / model.replaced_risk.sel(replaced="softmax")
        ratio = ratio.sel(replaced=list(kinds)).clip(max=MOST)
        middle = ratio.median("run")
        places = np.arange(len(kinds)) + 0.7 * ((i + 0.5) / models.sizes["model"] - 0.5)
        reach = np.stack([middle - ratio.min("run"), ratio.max("run") - middle])
        marks(change, i, places, middle, reach, mfc="none")
        if model.model.values == "attention 1x1":
            level = float(data.carried_alpha.sel(length=length))
            along.axhline(level, color=handles[-1].get_color(), lw=0.9, ls="--")
    for border in (0.5, 1.0):
        for line in (along.axhline, end.axvline):
            line(border, color="0.5", lw=0.8, ls=":")
    change.axhline(1.0, color="0.5", lw=0.8)
    describe(along, "training steps (leftmost: none)", r"median $\alpha=\sigma/\sqrt{2\ln L}$")
    along.set_xscale("log")
    x = r"$\alpha$ of a head after training"
    describe(end, x, "error / output", "affine read-out of a head", log="y")
    describe(change, "all heads replaced by", "risk / risk with softmax", log="y")
    change.set_xticks(range(len(kinds)), ["affine read-out", "mean"])
    legend: dict[str, Any] = {"loc": "outside lower center", "title": f"$L={length}$"}
    end.figure.legend(handles=handles, ncols=3, fontsize=7.5, **legend)


FIGURES = (risk, heads)
