"""The authors' experiment: trained risk against L, and SGD over the exact flow."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from largeprompt.runs.style import COLOURS, MARKERS, house_style, length_label


def trained_figure(data: xr.Dataset) -> Figure:
    """Risk against L at the end of training, both attentions and settings, with the Bayes line."""
    with house_style():
        figure = Figure(figsize=(7.6, 3.2))
        panels = figure.subplots(1, data.sizes["setting"], sharey=True, squeeze=False)[0]
        finite = data.sel(length=data.length[np.isfinite(data.length)]).isel(time=-1)
        for axes, setting in zip(panels, data.setting.values, strict=True):
            part = finite.sel(setting=setting)
            for i, kind in enumerate(data.attention.values):
                axes.plot(part.length, part.risk.sel(attention=kind), MARKERS[i] + "-", color=COLOURS[i], label=f"{kind}, trained")
                end = float(data.risk.sel(setting=setting, attention=kind).isel(time=-1, length=-1))
                axes.axhline(end, color=COLOURS[i], lw=0.8, ls=":")
            axes.plot(part.length, part.bayes_risk.isel(attention=0), color="black", ls="--", label="Bayes")
            axes.set(
                xscale="log", yscale="log", xlabel="prompt length $L$", title=f"{setting} setting, $t={float(data.time[-1]):g}$"
            )
        panels[0].set_ylabel("population risk")
        panels[0].plot([], [], color="0.4", lw=0.8, ls=":", label=r"the same, $L=\infty$")
        panels[0].legend(fontsize=7.5)
    return figure


def training_figure(data: xr.Dataset) -> Figure:
    """Risk and distance to the Bayes predictor along training, for three lengths and the infinite prompt."""
    with house_style():
        figure = Figure(figsize=(7.6, 3.2))
        panels = figure.subplots(1, 2)
        part = data.sel(setting="intended")
        chosen = [*part.length.values[np.linspace(0, len(part.length) - 2, 3).round().astype(int)], part.length.values[-1]]
        for i, length in enumerate(chosen):
            for kind, dash in zip(part.attention.values, ("-", "--"), strict=True):
                row = part.sel(attention=kind, length=length)
                name = length_label(length) if dash == "-" else None
                panels[0].plot(part.time, row.risk, dash, color=COLOURS[i])
                panels[1].plot(part.time, row.distance, dash, color=COLOURS[i], label=name)
        panels[1].plot([], [], color="0.3", label="softmax")
        panels[1].plot([], [], color="0.3", ls="--", label="linear")
        panels[0].set(ylabel="population risk", yscale="log")
        panels[1].set(ylabel=r"r.m.s. of infinite-prompt read-out $-\,w\cdot x$", yscale="log")
        for axes in panels:
            axes.set(xlabel="time $t$ (steps times learning rate)")
        panels[1].legend(fontsize=7.5, loc="lower left")
    return figure


def sgd_figure(data: xr.Dataset) -> Figure:
    """SGD on drawn prompts, as the authors ran it, over the exact flow."""
    with house_style():
        figure = Figure(figsize=(7.6, 3.2))
        panels = figure.subplots(1, data.sizes["attention"], sharey=True, squeeze=False)[0]
        last = float(data.sgd_time[-1])
        part = data.sel(setting="intended", time=data.time[data.time <= last * 1.2])
        for axes, kind in zip(panels, data.attention.values, strict=True):
            for i, length in enumerate(data.sgd_length.values):
                axes.plot(
                    part.time,
                    part.risk.sel(attention=kind, length=float(length)),
                    color=COLOURS[i],
                    label=f"$L={length}$, exact flow",
                )
                runs = data.sgd_risk.sel(attention=kind, sgd_length=length)
                for seed in data.sgd_seed.values:
                    axes.plot(data.sgd_time, runs.sel(sgd_seed=seed), MARKERS[i], color=COLOURS[i], ms=3, mfc="none")
            axes.plot([], [], "o", color="0.3", ms=3, mfc="none", label="SGD on drawn prompts")
            axes.set(xlabel="time $t$ (steps times learning rate)", title=f"{kind} attention")
        panels[0].set_ylabel("population risk")
        panels[0].legend(fontsize=7.5)
    return figure
