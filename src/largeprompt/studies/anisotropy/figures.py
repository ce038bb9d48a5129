"""Spread eigenvalues: what the score variance explains, and what it does not."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from largeprompt.runs.style import COLOURS, MARKERS, house_style

DIRECTIONS = {"weak": "-", "strong": "--", "mixed": ":"}


def collapse_figure(data: xr.Dataset) -> Figure:
    """Error, relative error, and the error less its two traces' predictions, for every spectrum and direction at one σ²."""
    variance = data.score_variance.values[len(data.score_variance) // 2]
    part = data.sel(score_variance=variance)
    with house_style():
        figure = Figure(figsize=(7.6, 3.3))
        left, middle, right = figure.subplots(1, 3)
        for i, spectrum in enumerate(data.spectrum.values):
            colour = COLOURS[i % len(COLOURS)]
            for direction, dash in DIRECTIONS.items():
                one = part.sel(spectrum=spectrum, direction=direction)
                label = str(spectrum) if direction == "weak" else None
                style = {"color": colour, "ls": dash, "lw": 1.0, "marker": MARKERS[i % len(MARKERS)], "ms": 3, "mfc": "none"}
                style["markevery"] = (4 + 2 * i, 24)  # a mark here and there tells the spectra apart without colour
                left.plot(part.length, one.exact * part.length, label=label, **style)
                middle.plot(part.length, np.sqrt(one.exact / one["size"]), **style)
                right.plot(part.length, one.exact * part.length / (one.trace + one["size"]), **style)
        for direction, dash in DIRECTIONS.items():
            middle.plot([], [], color="0.3", ls=dash, lw=1.0, label=f"{direction} direction")
        right.axhline(np.exp(variance), color="0.6", lw=0.8)
        right.text(
            float(part.length[-1]), np.exp(variance) * 0.985, r"$e^{\sigma^2}$", ha="right", va="top", fontsize=9, color="0.35"
        )
        left.set(yscale="log", ylabel=r"$L\,\mathbf{E}\,\|T_L-T\|^2$", title=rf"$\sigma^2={variance:g}$, tr $\Gamma=d$")
        middle.set(yscale="log", ylabel=r"relative error $(\mathbf{E}\,\|T_L-T\|^2)^{1/2}/\|T\|$", title="relative to the output")
        right.set(ylabel=r"$L\,\mathbf{E}\,\|T_L-T\|^2/(\mathrm{tr}\,\Gamma+\|\Gamma u\|^2)$", title="over the two traces")
        for axes in (left, middle, right):
            axes.set(xscale="log", xlabel="prompt length $L$")
        left.set_yticks([20, 50, 100, 200], ["20", "50", "100", "200"])
        left.set_yticks([], minor=True)
        left.legend(fontsize=6.5, loc="lower right")
        middle.axhline(0.1, color="0.6", lw=0.8)
        middle.legend(fontsize=7, loc="lower left")
    return figure


def spectrum_constants_figure(data: xr.Dataset) -> Figure:
    """Fitted c1 and c2 by spectrum and direction, and the exponent for random queries against H²."""
    with house_style():
        figure = Figure(figsize=(7.6, 3.3))
        left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1, 1.25))
        rows = np.arange(data.sizes["spectrum"])[::-1]
        for i, variance in enumerate(data.score_variance.values):
            for j, direction in enumerate(data.direction.values):
                part = data.sel(score_variance=variance, direction=direction)
                style = {"marker": MARKERS[j], "ls": "", "color": COLOURS[i], "mfc": "none" if j else COLOURS[i], "ms": 4}
                left.plot(part.c2, rows + 0.2 * (1 - j), **style)
                middle.plot(part.c1, rows + 0.2 * (1 - j), **style)
            left.plot([], [], "s", color=COLOURS[i], label=rf"$\sigma^2={variance:g}$")
        for j, direction in enumerate(data.direction.values):
            middle.plot([], [], MARKERS[j], color="0.3", mfc="none" if j else "0.3", ms=4, label=str(direction))
        left.set(xscale="log", xlabel="$c_2$, fitted")
        middle.set(xscale="log", xlabel="$c_1$, fitted")
        left.set_yticks(rows, data.spectrum.values)
        middle.set_yticks(rows, [])
        left.set_xticks([0.5, 1, 2, 4], ["0.5", "1", "2", "4"])
        left.set_xticks([], minor=True)
        above = {
            "fontsize": 7,
            "loc": "lower center",
            "bbox_to_anchor": (0.5, 1.0),
            "ncols": 3,
            "columnspacing": 1.0,
            "handletextpad": 0.2,
        }
        left.legend(**above)
        middle.legend(**above)
        square = np.linspace(0.02, float(data.random_square.max()) * 1.1, 300)
        right.plot(square, np.where(square < 0.5, 1.0, np.sqrt(1 / square + 0.25) - 0.5), color="black", label="$g(H)$, predicted")
        last = len(data.decade_end) - 1
        for i, k in enumerate(sorted({0, last // 2, last})):
            start, end = int(data.decade[k]), int(data.decade_end[k])
            label = rf"exact, $L=10^{{{start}}}$ to $10^{{{end}}}$"
            right.plot(data.random_square, data.random_exponent.isel(decade_end=k), MARKERS[i], color=COLOURS[i], label=label)
        right.set(xlabel=r"$H^2$, set by $\lambda_{\max}$", ylabel="decay exponent", ylim=(0, 1.1))
        right.set_title(rf"random queries, mean $\sigma^2={float(data.mean_score_variance):g}$")
        right.legend(fontsize=7, loc="lower left")
    return figure
