"""The slow drift of a long prompt's gradient flow."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from largeprompt.runs.style import COLOURS, DASHES, MARKERS, house_style, length_label


def drift_figure(data: xr.Dataset) -> Figure:
    """Read-out b and excess risk against time on logarithmic axes, one curve for each length."""
    with house_style():
        figure = Figure(figsize=(7.4, 3.1))
        left, right = figure.subplots(1, 2)
        shown = data.isel(time=slice(1, None))
        for i, length in enumerate(data.length.values):
            colour, dash = ("black", "-") if np.isinf(length) else (COLOURS[i], DASHES[i])
            left.plot(shown.time, shown.b.isel(length=i), color=colour, ls=dash, label=length_label(length))
            if np.isfinite(length):
                left.plot(shown.time[-1:], [float(data.optimal_b[i])], MARKERS[i], color=colour, ms=5, mfc="none", clip_on=False)
            right.plot(shown.time, np.maximum(shown.risk.isel(length=i), 1e-12), color=colour, ls=dash)
        left.plot([], [], "o", color="0.3", mfc="none", label="optimum at $L$")
        left.axhline(float(data.predicted_b), color="0.6", lw=0.8, ls=":")
        left.text(0.12, float(data.predicted_b) + 0.03, r"$\mathrm{tr}(\Sigma^{-2})^{1/4}$", fontsize=8, color="0.35")
        left.set(xscale="log", xlabel="time $t$", ylabel="read-out $b(t)$", title="the parameters drift for a time of order $L$")
        right.set(
            xscale="log", yscale="log", ylim=(1e-7, 3), xlabel="time $t$", ylabel="risk", title="and the risk falls on the way"
        )
        left.legend()
    return figure
