"""Spread eigenvalues: what the score variance explains, and what it does not."""

from typing import Any

import numpy as np
import xarray as xr

from largeprompt.runs.style import COLOURS, MARKERS, Axes, describe, study_figure, ticks
from largeprompt.studies.lengths import sharp_exponent

DASHES = {"weak": "-", "strong": "--"}


@study_figure(
    "collapse",
    "Three of the spectra, of equal trace, read along their weakest and strongest direction with "
    "the same score variance: error times L, and error relative to the output. Right: the range "
    "of all spectra and directions, over tr Γ alone and over tr Γ + ‖Γu‖², which brings long "
    "prompts together.",
    size=(9.0, 3.3),
    panels=(1, 3),
)
def collapse(data: xr.Dataset, left: Axes, middle: Axes, right: Axes) -> None:
    """Error and relative error of three spectra in two directions at one σ²; the range of all, less
    their predictions.
    """
    variance = data.score_variance.values[len(data.score_variance) // 2]
    part, length = data.sel(score_variance=variance), data.length
    order = np.argsort(part.condition.values, kind="stable")
    for i, spectrum in enumerate(
        part.spectrum.values[sorted({order[0], order[len(order) // 2], order[-1]})]
    ):
        for direction in sorted(set(DASHES) & set(part.direction.values), reverse=True):
            one = part.sel(spectrum=spectrum, direction=direction)
            style: dict[str, Any] = {"color": COLOURS[i], "ls": DASHES[direction]}
            left.plot(length, one.exact * length, label=f"{spectrum}, {direction}", **style)
            middle.plot(length, np.sqrt(one.exact / one["size"]), **style)
    error, over = part.exact * length, r"L\,\mathbf{E}\,\|T_L-T\|^2"
    scales = (
        (part.trace, r"$\mathrm{tr}\,\Gamma$"),
        (part.trace + part["size"], r"$\mathrm{tr}\,\Gamma+\|\Gamma u\|^2$"),
    )
    for i, (scale, label) in enumerate(scales):
        share = error / scale
        low, high = share.min(("spectrum", "direction")), share.max(("spectrum", "direction"))
        right.fill_between(
            length, low, high, color=COLOURS[1 - i], alpha=0.5, lw=0.8, label=f"over {label}"
        )
    right.axhline(np.exp(variance), color="0.3", lw=0.8, ls=":", label=r"$e^{\sigma^2}$")
    middle.axhline(0.1, color="0.6", lw=0.8)
    describe(
        left,
        "prompt length $L$",
        f"${over}$",
        rf"$\sigma^2={variance:g}$, tr $\Gamma=d$",
        log="xy",
        legend=7,
        below=2,
    )
    words = (r"$(\mathbf{E}\,\|T_L-T\|^2)^{1/2}/\|T\|$", "relative to the output")
    describe(middle, "prompt length $L$", *words, log="xy")
    describe(
        right,
        "prompt length $L$",
        f"${over}$ over traces",
        "range of all spectra",
        log="xy",
        legend=7,
        below=2,
    )


@study_figure(
    "constants",
    "Constants of the paper's form fitted to each spectrum, direction and score variance; and the "
    "decay exponent for "
    "random queries of one mean score variance, whose H² the largest eigenvalue sets.",
    size=(7.6, 3.3),
    panels=(1, 3),
    width_ratios=(1, 1, 1.25),
)
def constants(data: xr.Dataset, left: Axes, middle: Axes, right: Axes) -> None:
    """Fitted c1 and c2 by spectrum and direction, and the exponent for random
    queries against H².
    """
    rows = np.arange(data.sizes["spectrum"])[::-1]
    for i, variance in enumerate(data.score_variance.values):
        for j, direction in enumerate(data.direction.values):
            part = data.sel(score_variance=variance, direction=direction)
            for axes, constant in ((left, part.c2), (middle, part.c1)):
                axes.plot(
                    constant,
                    rows + 0.2 * (1 - j),
                    MARKERS[j],
                    color=COLOURS[i],
                    mfc="none" if j else COLOURS[i],
                    ms=4,
                )
        left.plot([], [], "s", color=COLOURS[i], label=rf"$\sigma^2={variance:g}$")
    for j, direction in enumerate(data.direction.values):
        middle.plot(
            [], [], MARKERS[j], color="0.3", mfc="none" if j else "0.3", ms=4, label=str(direction)
        )
    left.set_yticks(rows, data.spectrum.values)
    middle.set_yticks(rows, [])
    for axes, name in ((left, "c_2"), (middle, "c_1")):
        axes.set(xscale="log", xlabel=f"${name}$, fitted")
        axes.legend(
            fontsize=7,
            loc="lower center",
            bbox_to_anchor=(0.5, 1.0),
            ncols=3,
            columnspacing=1.0,
            handletextpad=0.2,
        )
    ticks(left, "x", (0.5, 1, 2, 4))
    square = np.linspace(0.02, float(data.random_square.max()) * 1.1, 300)
    right.plot(square, sharp_exponent(square), color="black", label="$g(H)$, predicted")
    last = data.sizes["decade_end"] - 1
    for i, k in enumerate(sorted({0, last // 2, last})):
        label = rf"exact, $L=10^{{{int(data.decade[k])}}}$ to $10^{{{int(data.decade_end[k])}}}$"
        right.plot(
            data.random_square,
            data.random_exponent.isel(decade_end=k),
            MARKERS[i],
            color=COLOURS[i],
            label=label,
        )
    title = rf"random queries, mean $\sigma^2={data.mean_score_variance:g}$"
    describe(
        right,
        r"$H^2$, set by $\lambda_{\max}$",
        "decay exponent",
        title,
        legend=7,
        loc="lower left",
        ylim=(0, 1.1),
    )


FIGURES = (collapse, constants)
