"""Exact error, certificate, samples, first order and the paper's form, against prompt length."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from largeprompt.report.figures.style import COLOURS, house_style


def draw_finite_error(data: xr.Dataset, axes: Axes) -> None:
    """One score variance: all five curves."""
    variance = float(data.score_variance)
    axes.plot(data.length, data.certified, color=COLOURS[5], lw=1.2, ls="-.", label="certified")
    axes.plot(data.length, data.first_order, color="0.55", lw=1.0, ls="--", label="first order")
    axes.plot(data.length, data.paper_form, color=COLOURS[3], lw=1.0, ls=":", label="paper's form, fitted")
    axes.plot(data.length, data.exact, color=COLOURS[0], lw=1.6, label="exact")
    axes.errorbar(
        data.sampled_length,
        data.sampled,
        yerr=2 * data.sampled_standard_error,
        fmt="o",
        color=COLOURS[1],
        ms=4,
        mec="0.2",
        mew=0.4,
        lw=0.8,
        label="sampled ± 2 s.e.",
    )
    top = float(data.certified.max())
    axes.set(xscale="log", yscale="log", xlabel="prompt length $L$", ylim=(float(data.exact.min()) / 2, 4 * top))
    axes.axvline(np.exp(2 * variance), color="0.8", lw=0.8, zorder=0)
    axes.set_title(rf"$\sigma^2={variance:g}$:  $c_1={float(data.c1):.2g}$, $c_2={float(data.c2):.2g}$")


def finite_error_figure(data: xr.Dataset) -> Figure:
    """One panel for each score variance; the grey line is L = e^{2σ²}, where the linear regime begins."""
    with house_style():
        count = data.sizes["score_variance"]
        figure = Figure(figsize=(2.55 * count + 0.2, 3.0))
        panels = figure.subplots(1, count, squeeze=False)[0]
        for axes, variance in zip(panels, data.score_variance.values, strict=True):
            draw_finite_error(data.sel(score_variance=variance), axes)
        panels[0].set_ylabel(r"$\mathbf{E}\,\|T_L-T\|^2$")
        panels[0].legend(fontsize=7.5, loc="lower left")
    return figure
