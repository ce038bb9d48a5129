"""The infinite-prompt limit: identities, gaps, and drawn prompts that tend to it."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from largeprompt.runs.style import COLOURS, DASHES, MARKERS, house_style


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


def limit_figure(data: xr.Dataset) -> Figure:
    """Two panels: distance to the limit, and to the affine read-out, against prompt length."""
    with house_style():
        figure = Figure(figsize=(7.4, 3.1))
        left, right = figure.subplots(1, 2, sharey=True)
        draw_distance_to_limit(data, left)
        draw_distance_to_affine(data, right)
        right.tick_params(labelleft=True)
    return figure


KINDS = {
    "regular": r"$\mathcal{N}(m,\Gamma)$",
    "singular": r"$\mathcal{N}(m,\Gamma)$, rank $\lfloor d/2\rfloor$",
    "mixture": "mixture of three",
}


def identity_figure(data: xr.Dataset) -> Figure:
    """Error of the operator against quadrature, by dimension; gap of other laws to the affine map, by score variance."""
    with house_style():
        figure = Figure(figsize=(7.4, 3.1))
        left, right = figure.subplots(1, 2)
        for i, kind in enumerate(data.kind.values):
            error = np.maximum(data.identity_error.sel(kind=kind), 1e-17)
            left.plot(data.dim, error, MARKERS[i] + "-", color=COLOURS[i], lw=0.8, label=KINDS[str(kind)])
        affine = data.affine_error.sel(kind="mixture")
        left.plot(data.dim, affine, "x:", color=COLOURS[5], lw=0.8, label="mixture, affine map instead")
        left.axhline(2.0**-52, color="0.6", lw=0.8, ls="--")
        left.text(float(data.dim[-1]), 2.0**-52 / 1.6, "rounding unit", fontsize=7.5, color="0.35", ha="right", va="top")
        left.set(xscale="log", yscale="log", ylim=(5e-18, 30), xlabel="dimension $d$", ylabel="relative error of $T[\\mu](z)$")
        left.set_title("against quadrature")
        left.legend(fontsize=7.5, loc="center right")
        for i, law in enumerate(data.control.values):
            one = data.sel(control=law)
            right.plot(one.gap_score_variance, one.control_gap, color=COLOURS[i], ls=DASHES[i], lw=1.1, label=str(law))
            right.plot(one.gap_score_variance, one.control_gap_quadrature, MARKERS[i], color=COLOURS[i], ms=4, mfc="none")
        right.plot([], [], "o", color="0.3", ms=4, mfc="none", label="by quadrature")
        right.set(xscale="log", yscale="log", xlabel=r"score variance $\sigma^2$", ylabel=r"$\|T-T_{\mathrm{affine}}\|$")
        right.set_title("controls: not affine unless Gaussian")
        right.legend(fontsize=7.5)
    return figure
