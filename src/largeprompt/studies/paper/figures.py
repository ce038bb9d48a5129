"""The authors' experiment: trained risk against L, and SGD over the exact flow."""

import numpy as np
import xarray as xr

from largeprompt.runs.style import (
    COLOURS,
    MARKERS,
    Axes,
    describe,
    entry,
    length_label,
    study_figure,
)

SIZE = (7.6, 3.2)
TIME = "time $t$ (steps times learning rate)"


@study_figure(
    "trained",
    "Risk at the end of training against L, both settings, with the Bayes risk.",
    size=SIZE,
    panels=lambda data: (1, data.sizes["setting"]),
    sharey=True,
)
def trained(data: xr.Dataset, *panels: Axes) -> None:
    """Risk against L at the end of training, both attentions and settings, with the Bayes line."""
    last = data.isel(time=-1)
    for axes, setting in zip(panels, data.setting.values, strict=True):
        part = last.sel(setting=setting, length=data.length[np.isfinite(data.length)])
        for i, kind in enumerate(data.attention.values):
            axes.plot(
                part.length,
                part.risk.sel(attention=kind),
                MARKERS[i] + "-",
                color=COLOURS[i],
                label=f"{kind}, trained",
            )
            axes.axhline(
                float(last.risk.sel(setting=setting, attention=kind)[-1]),
                color=COLOURS[i],
                lw=0.8,
                ls=":",
            )
        axes.plot(
            part.length, part.bayes_risk.isel(attention=0), color="black", ls="--", label="Bayes"
        )
        describe(
            axes, "prompt length $L$", "", f"{setting} setting, $t={data.time[-1]:g}$", log="xy"
        )
    entry(panels[0], r"the same, $L=\infty$", lw=0.8, ls=":")
    describe(panels[0], "", "population risk", legend=7.5)


@study_figure(
    "training",
    "Risk and distance to the Bayes predictor along training (intended setting).",
    size=SIZE,
)
def training(data: xr.Dataset, left: Axes, right: Axes) -> None:
    """Risk and distance to the Bayes predictor along training, for three lengths and the infinite
    prompt.
    """
    part = data.sel(setting="intended")
    chosen = [
        *part.length.values[np.linspace(0, len(part.length) - 2, 3).round().astype(int)],
        part.length.values[-1],
    ]
    for i, length in enumerate(chosen):
        for kind, dash in zip(part.attention.values, ("-", "--"), strict=True):
            row = part.sel(attention=kind, length=length)
            left.plot(part.time, row.risk, dash, color=COLOURS[i])
            right.plot(
                part.time,
                row.distance,
                dash,
                color=COLOURS[i],
                label=length_label(length) if dash == "-" else None,
            )
    entry(right, "softmax")
    entry(right, "linear", ls="--")
    describe(left, TIME, "population risk", log="y")
    describe(
        right,
        TIME,
        r"r.m.s. of infinite-prompt read-out $-\,w\cdot x$",
        log="y",
        legend=7.5,
        loc="lower left",
    )


@study_figure(
    "sgd",
    "SGD as the authors ran it (marks) over the exact flow (lines).",
    size=SIZE,
    panels=lambda data: (1, data.sizes["attention"]),
    needs=("sgd_risk",),
    sharey=True,
)
def sgd(data: xr.Dataset, *panels: Axes) -> None:
    """SGD on drawn prompts, as the authors ran it, over the exact flow."""
    part = data.sel(setting="intended", time=data.time[data.time <= float(data.sgd_time[-1]) * 1.2])
    for axes, kind in zip(panels, data.attention.values, strict=True):
        for i, length in enumerate(data.sgd_length.values):
            flow = part.risk.sel(attention=kind, length=float(length))
            axes.plot(part.time, flow, color=COLOURS[i], label=f"$L={length}$, exact flow")
            for seed in data.sgd_seed.values:
                run = data.sgd_risk.sel(attention=kind, sgd_length=length, sgd_seed=seed)
                axes.plot(data.sgd_time, run, MARKERS[i], color=COLOURS[i], ms=3, mfc="none")
        entry(axes, "SGD on drawn prompts", marker="o", ls="none", ms=3, mfc="none")
        axes.set(xlabel=TIME, title=f"{kind} attention")
    describe(panels[0], "", "population risk", legend=7.5)


FIGURES = (trained, training, sgd)
