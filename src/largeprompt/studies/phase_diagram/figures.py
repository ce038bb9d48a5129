"""The regimes of a finite prompt."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from largeprompt.runs.style import house_style


def phase_diagram_figure(data: xr.Dataset) -> Figure:
    """Effective tokens as colour over (σ², L), with the lines L = e^{2σ²} and L = e^{σ²/2} between the regimes."""
    with house_style():
        figure = Figure(figsize=(5.2, 3.7))
        axes = figure.subplots()
        x, y = data.score_variance.values, data.length.values
        tokens = data.effective_tokens.values
        mesh = axes.pcolormesh(x, y, tokens, norm=LogNorm(1, tokens.max()), cmap="cividis", shading="gouraud", rasterized=True)
        levels = 10.0 ** np.arange(0, 12, 2)
        levels[0] = 2.0
        contours = axes.contour(x, y, tokens, levels=levels, colors="white", linewidths=0.5, alpha=0.8)
        axes.clabel(contours, fmt=lambda v: f"{v:.0f}" if v < 1000 else f"$10^{{{np.log10(v):.0f}}}$", fontsize=6.5)
        for factor, style, label in ((2.0, "-", r"$L=e^{2\sigma^2}$"), (0.5, "--", r"$L=e^{\sigma^2/2}$")):
            axes.plot(x, np.exp(factor * x), color="white", lw=1.6, ls=style, label=label)
        axes.set(
            yscale="log",
            xlim=(x[0], x[-1]),
            ylim=(max(2, y[0]), y[-1]),
            xlabel=r"score variance $\sigma^2$",
            ylabel="prompt length $L$",
        )
        middle = x[-1]
        for place, text in (((0.02 * middle, 1.5e7), "linear"), ((0.42 * middle, 1e9), "heavy"), ((0.72 * middle, 30.0), "frozen")):
            axes.text(*place, text, color="white", fontsize=11, fontweight="bold")
        axes.legend(
            loc="upper right", fontsize=8, labelcolor="white", facecolor="0.25", frameon=True, framealpha=0.6, edgecolor="none"
        )
        axes.grid(False)
        figure.colorbar(mesh, ax=axes, label=r"effective tokens $1/\mathbf{E}\,\sum_l w_l^2$")
    return figure
