"""Errors of output and derivatives against prompt length: exact, certified, drawn, first order, and the paper's form."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from largeprompt.runs.style import COLOURS, DASHES, MARKERS, house_style

LABELS = {
    "output": r"$\mathbf{E}\,\|T_L-T\|^2$",
    "jacobian_u": r"$\mathbf{E}\,\|\partial_U T_L-\partial_U T\|^2$",
    "jacobian_v": r"$\mathbf{E}\,\|\partial_V T_L-\partial_V T\|^2$",
}


def fitted_form(data: xr.Dataset, quantity: str) -> xr.DataArray:
    """The paper's form with the constants fitted at this score variance: c1 σ⁶ ln(L)/L^{c2/σ²}, ln²(L) for the derivative in U."""
    c1, c2 = (float(data[name].sel(quantity=quantity, interval="estimate")) for name in ("c1", "c2"))
    variance, logs = float(data.score_variance), 2 if quantity == "jacobian_u" else 1
    form: xr.DataArray = c1 * variance**3 * np.log(data.length) ** logs * data.length ** (-c2 / variance)
    return form.where(data.length > 1)


def draw_errors(data: xr.Dataset, quantity: str, axes: Axes) -> None:
    """One quantity at one score variance: exact, certified, first order (output), the paper's form, samples."""
    variance, part = float(data.score_variance), data.sel(quantity=quantity)
    axes.plot(data.length, part.certified, color=COLOURS[5], lw=1.2, ls="-.", label="certified")
    if quantity == "output":
        axes.plot(data.length, data.first_order, color="0.55", lw=1.0, ls="--", label="first order")
    axes.plot(data.length, fitted_form(data, quantity), color=COLOURS[3], lw=1.1, ls=":", label="paper's form, fitted")
    axes.plot(data.length, part.exact, color=COLOURS[0], lw=1.6, label="exact")
    axes.errorbar(
        data.sampled_length,
        part.sampled,
        yerr=2 * part.sampled_standard_error,
        fmt="o",
        color=COLOURS[1],
        ms=4,
        mec="0.2",
        mew=0.4,
        lw=0.8,
        label="drawn ± 2 s.e.",
    )
    axes.set(xscale="log", yscale="log", ylim=(float(part.exact.min()) / 3, 60 * float(part.exact.max())))
    axes.axvline(np.exp(2 * variance), color="0.8", lw=0.8, zorder=0)


def convergence_figure(data: xr.Dataset) -> Figure:
    """Output above, derivative in U below, one column for each score variance; grey line: L = e^{2σ²}, where 'linear' begins."""
    quantities = ("output", "jacobian_u")
    with house_style():
        count = data.sizes["score_variance"]
        figure = Figure(figsize=(2.5 * count + 0.3, 5.0))
        panels = figure.subplots(len(quantities), count, squeeze=False, sharex=True)
        for row, quantity in zip(panels, quantities, strict=True):
            for axes, variance in zip(row, data.score_variance.values, strict=True):
                one = data.sel(score_variance=variance)
                draw_errors(one, quantity, axes)
                c1, c2 = (float(one[name].sel(quantity=quantity, interval="estimate")) for name in ("c1", "c2"))
                axes.set_title(rf"$\sigma^2={variance:g}$:  $c_1={c1:.2g}$, $c_2={c2:.2f}$")
            row[0].set_ylabel(LABELS[quantity])
        for axes in panels[-1]:
            axes.set_xlabel("prompt length $L$")
        panels[0, 0].legend(fontsize=7, loc="lower left")
    return figure


def constants_figure(data: xr.Dataset) -> Figure:
    """Slope, c2 and c1 against score variance with 95 % intervals, for output and both derivatives."""
    with house_style():
        figure = Figure(figsize=(7.6, 2.7))
        panels = figure.subplots(1, 3)
        variance = data.score_variance.values.astype(float)
        for axes, name in zip(panels, ("slope", "c2", "c1"), strict=True):
            for i, quantity in enumerate(data.quantity.values):
                part = data[name].sel(quantity=quantity)
                middle, low, high = (part.sel(interval=each).values for each in ("estimate", "lower", "upper"))
                shifted = variance * 1.04 ** (i - 1)
                label = {"output": "output", "jacobian_u": r"$\partial_U$", "jacobian_v": r"$\partial_V$"}[str(quantity)]
                spread = np.abs(np.stack([middle - low, high - middle]))
                axes.errorbar(shifted, middle, spread, fmt=MARKERS[i], ls=DASHES[i], color=COLOURS[i], lw=0.9, ms=4, label=label)
            axes.set(xscale="log", xlabel=r"score variance $\sigma^2$")
            axes.set_xticks(variance, [f"{each:g}" for each in variance], minor=False)
            axes.set_xticks([], minor=True)
        panels[0].axhspan(-1.11, -0.83, color="0.9", zorder=0)
        panels[0].text(variance[0] * 0.95, -1.1, "public audit", fontsize=7.5, color="0.35", va="bottom")
        panels[0].set_ylabel("slope of the squared error in $L$")
        panels[1].plot(variance, variance, color="0.6", lw=0.8, ls="--", label=r"$c_2=\sigma^2$")
        panels[1].set(yscale="log", ylabel="$c_2$, fitted")
        panels[2].set(yscale="log", ylabel="$c_1$, fitted")
        panels[1].set_yticks([0.5, 1, 2, 4, 8], ["0.5", "1", "2", "4", "8"])
        panels[1].set_yticks([], minor=True)
        panels[1].legend(fontsize=7.5)
    return figure
