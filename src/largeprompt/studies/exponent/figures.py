"""The exponent of the query-averaged error against H."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from largeprompt.runs.style import COLOURS, MARKERS, house_style


def exponent_figure(data: xr.Dataset) -> Figure:
    """Local exponents of the exact law at growing L, with the predicted curve that they tend to."""
    with house_style():
        figure = Figure(figsize=(7.2, 3.1))
        panels = figure.subplots(1, data.sizes["dim"], sharey=True, squeeze=False)[0]
        square = np.linspace(0.02, float(data.square.max()) * 1.05, 400)
        sharp = np.where(square < 0.5, 1.0, np.sqrt(1 / square + 0.25) - 0.5)
        shown = data.decade_end.values[sorted({0, len(data.decade_end) // 2, len(data.decade_end) - 1})]
        for axes, dim in zip(panels, data.dim.values, strict=True):
            axes.plot(square, sharp, color="black", lw=1.6, label=r"$g(H)$, predicted")
            axes.plot(square, 1 / (1 + square), color="0.5", lw=1.2, ls="--", label=r"$1/(1+H^2)$ (2512.10656)")
            axes.plot(square, 1 / square, color="0.7", lw=1.0, ls=":", label=r"$c_2/H^2$, $c_2=1$")
            for i, end in enumerate(shown):
                local = data.exponent.sel(dim=dim, decade_end=end)
                start = data.decade.values[list(data.decade_end.values).index(end)]
                axes.plot(data.square, local, MARKERS[i], color=COLOURS[i], label=rf"exact, $L=10^{{{start}}}$ to $10^{{{end}}}$")
            if dim > 1:
                middle = (float(data.decade[-2]) + float(data.decade[-1])) / 2 * np.log(10)
                less = (data.exponent.sel(dim=dim, decade_end=shown[-1]) + (dim - 1) / (2 * middle)).where(data.square >= 0.5)
                label = r"the last, less $(\ln L)^{(d-1)/2}$"
                axes.plot(data.square, less, MARKERS[len(shown) - 1], color=COLOURS[len(shown) - 1], mfc="none", ms=6, label=label)
            axes.set(xlabel=r"$H^2=\|\Gamma^{1/2}UC^{1/2}\|^2$", title=f"$d={dim}$", ylim=(0, 1.1))
        panels[0].set_ylabel(r"decay exponent of $\mathbf{E}\,\|T_L-T\|^2$")
        panels[-1].legend(fontsize=7.5)
    return figure
