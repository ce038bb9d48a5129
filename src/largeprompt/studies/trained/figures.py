"""Transformers trained here: their risk beside the exact theory of one layer, and what the audit
says of their heads.
"""

import math

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
    """Models trained on true prompts, the shallow ones first; all where there is none."""
    genuine = ~data.shuffled.values.astype(bool)
    chosen = np.flatnonzero(genuine if genuine.any() else ~genuine)
    order = sorted(
        chosen,
        key=lambda i: (
            str(data.kind.values[i]),
            int(data.layers.values[i]),
            int(data.heads.values[i]),
        ),
    )
    return data.isel(model=order)


def _kinds(data: xr.Dataset) -> list[str]:
    return [kind for kind in KINDS if kind in _genuine(data).kind.values]


def _name(model: xr.Dataset) -> str:
    layers, heads = int(model.layers), int(model.heads)
    return f"{layers} layer{'s' if layers > 1 else ''}, {heads} head{'s' if heads > 1 else ''}"


@study_figure(
    "trained_risk",
    "Risk above the noise of trained transformers on fresh prompts (marks, mean and standard "
    "error over trainings), over the exact curves of one layer and the Bayes risk, all computed "
    "beforehand. Grey: lengths of training.",
    size=(7.6, 3.7),
    panels=lambda data: (1, len(_kinds(data))),
    sharey=True,
)
def risk(data: xr.Dataset, *panels: Axes) -> None:
    """Excess risk on fresh prompts against L, one panel for each kind of model, over the exact
    curves.
    """
    models, figure = _genuine(data), panels[0].figure
    for axes, kind in zip(panels, _kinds(data), strict=True):
        theory = [
            axes.plot(
                data.length, data[name] - data.floor, dash, color="0.25", lw=1.1, label=label
            )[0]
            for name, label, dash in THEORY
        ]
        axes.axvspan(
            float(data.training_length.min()),
            float(data.training_length.max()),
            color="0.93",
            zorder=0,
        )
        drawn = []
        for index in np.flatnonzero(models.kind.values == kind).tolist():
            model = models.isel(model=index)
            excess = model.risk - data.floor
            error = excess.std("run", ddof=1) / math.sqrt(excess.sizes["run"])
            drawn.append(
                marks(
                    axes,
                    index,
                    data.length,
                    excess.mean("run"),
                    error,
                    _name(model),
                    capsize=2,
                    mfc="none",
                )
            )
        describe(axes, "prompt length $L$", "", KINDS[kind], log="xy")
        ticks(axes, "x", data.length.values)
        axes.legend(handles=drawn, fontsize=7.5, loc="lower left")
    panels[0].set_ylabel("risk above the noise, $R_L-s^2/2$")
    figure.legend(handles=theory, loc="outside lower center", ncols=len(THEORY), fontsize=8)


@study_figure(
    "trained_heads",
    "Heads of trained transformers at the query token: alpha along training, with the level that "
    "the exact optimum of one head predicts (dashed); error of the affine read-out after "
    "training, and the mean square that Gaussian tokens of the same moments and number would have "
    "over its own; risk after heads are replaced (median and range over trainings, 20 or more at "
    "the edge). Dotted: borders of the regimes linear, heavy, frozen; grey: the audit's tolerance.",
    size=(7.6, 6.2),
    panels=(2, 2),
)
def heads(data: xr.Dataset, along: Axes, end: Axes, change: Axes, law: Axes) -> None:
    """Alpha along training; affine error and what the exact law explains of it against alpha; the
    risk with heads replaced.
    """
    models, longest, figure = _genuine(data), int(data.training_length.max()), along.figure
    handles = []
    for index, _, model in curves(models, "model"):
        name = f"{KINDS[str(model.kind.values)]}, {_name(model)}"
        # 0 has no logarithm
        steps = np.maximum(model.step.values, model.step.values[1:2].max(initial=1) / 3)
        handles += along.plot(
            steps,
            model.alpha.median(["run", "layer", "head"]),
            label=name,
            **look(index, mfc="none"),
        )
        last = model.isel(checkpoint=-1)
        for axes, values in ((end, last.affine_error), (law, last.law_share)):
            axes.plot(
                last.alpha.values.ravel(),
                values.values.ravel(),
                **look(index, ls="none", mfc="none"),
            )
        _changes(change, model, index, models.sizes["model"])
    alone = np.flatnonzero(models.model.values == "attention 1x1")
    if len(alone) and longest in data.length.values:
        along.axhline(
            float(data.carried_alpha.sel(length=longest)),
            color=handles[alone[0]].get_color(),
            lw=0.9,
            ls="--",
        )
    for border in (0.5, 1.0):
        for line in (along.axhline, end.axvline, law.axvline):
            line(border, color="0.5", lw=0.8, ls=":")
    for axes, level in ((law, 1.0), (end, TOLERANCE), (change, 1.0)):
        axes.axhline(level, color="0.5", lw=0.8)
    describe(
        along,
        "training steps (leftmost: none)",
        r"median of $\alpha=\sigma/\sqrt{2\ln L}$",
        log="x",
    )
    describe(end, r"$\alpha$ of a head after training", "affine read-out: error / output", log="y")
    describe(
        law, r"$\alpha$ of a head after training", "exact law's error² / error²", ylim=(0, None)
    )
    describe(change, "heads replaced", "risk / risk with softmax", log="y")
    change.set_xticks(range(len(CHANGES)), list(CHANGES.values()), fontsize=7)
    for axes in (end, change):
        low, high = axes.get_ylim()
        ticks(axes, "y", [each for each in TICKS if low <= each <= high])
    title = f"audited at the query, $L={longest}$"
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=2,
        fontsize=7.5,
        title=title,
        title_fontsize=8,
    )


def _changes(axes: Axes, model: xr.Dataset, index: int, count: int) -> None:
    """Median and range over trainings; what has run away stays at the upper edge."""
    ratio = (
        (model.replaced_risk / model.replaced_risk.sel(replaced="softmax"))
        .sel(replaced=list(CHANGES))
        .clip(max=MOST)
    )
    middle = ratio.median("run")
    places = np.arange(len(CHANGES)) + 0.7 * ((index + 0.5) / count - 0.5)
    reach = np.stack([middle - ratio.min("run"), ratio.max("run") - middle])
    marks(axes, index, places, middle, reach, capsize=1.5, mfc="none")


FIGURES = (risk, heads)
