"""Error against prompt length."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from largeprompt.report.figures.style import COLOURS, MARKERS, house_style


def draw_distance_to_limit(data: xr.Dataset, axes: Axes) -> None:
    """Root mean squared distance to each law's own limit, with the first-order prediction through it."""
    for i, law in enumerate(data.law.values):
        one = data.sel(law=law)
        axes.plot(one.length, np.sqrt(one.first_order_mse), color=COLOURS[i], lw=1.0, ls="--")
        axes.plot(one.length, np.sqrt(one.mse), MARKERS[i], color=COLOURS[i], label=str(law))
    axes.plot([], [], color="0.3", lw=1.0, ls="--", label="predicted, first order")
    axes.set(xscale="log", yscale="log", xlabel="prompt length $L$", ylabel=r"$(\mathbf{E}\,\|T_L-T\|^2)^{1/2}$")
    axes.set_title("to the limit of its own law: falls for all")
    axes.legend()


def draw_distance_to_affine(data: xr.Dataset, axes: Axes) -> None:
    """Root mean squared distance to the affine read-out, with the level at which it must stop."""
    for i, law in enumerate(data.law.values):
        one = data.sel(law=law)
        axes.plot(one.length, np.sqrt(one.affine_mse), MARKERS[i], color=COLOURS[i], ls="-", lw=0.8, label=str(law))
        if float(one.gap) > 1e-9:
            axes.axhline(float(one.gap), color=COLOURS[i], lw=1.0, ls=":")
    axes.plot([], [], color="0.3", lw=1.0, ls=":", label="predicted gap")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="prompt length $L$",
        ylabel=r"$(\mathbf{E}\,\|T_L-T_{\mathrm{affine}}\|^2)^{1/2}$",
    )
    axes.set_title("to the affine map: stops unless Gaussian")
    axes.legend()


def convergence_figure(data: xr.Dataset) -> Figure:
    """Two panels: distance to the limit, and to the affine read-out, against prompt length."""
    with house_style():
        figure = Figure(figsize=(7.4, 3.1))
        left, right = figure.subplots(1, 2, sharey=True)
        draw_distance_to_limit(data, left)
        draw_distance_to_affine(data, right)
        right.tick_params(labelleft=True)
    return figure
