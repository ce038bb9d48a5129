"""Spread eigenvalues: what the score variance explains, and what it does not."""

from typing import Any

import numpy as np
import xarray as xr

from largeprompt.runs.style import COLOURS, MARKERS, Axes, describe, study_figure, ticks
from largeprompt.studies.anisotropy.formulas import DIRECTIONS
from largeprompt.studies.exponent.formulas import sharp_exponent

DASHES = dict(zip(DIRECTIONS, ("-", "--", ":"), strict=True))


@study_figure(
    "collapse",
    "Seven spectra of equal trace read along weak, strong and mixed directions, all with the same score variance: error "
    "times L, error relative to the output, and error over tr Γ + ‖Γu‖², which brings long prompts together.",
    size=(7.6, 3.3),
    panels=(1, 3),
)
def collapse(data: xr.Dataset, left: Axes, middle: Axes, right: Axes) -> None:
    """Error, relative error, and the error less its two traces' predictions, for every spectrum and direction at one σ²."""
    variance = data.score_variance.values[len(data.score_variance) // 2]
    part = data.sel(score_variance=variance)
    for i, spectrum in enumerate(data.spectrum.values):
        style: dict[str, Any] = {"color": COLOURS[i], "lw": 1.0, "ms": 3, "mfc": "none"}
        marks: dict[str, Any] = {"marker": MARKERS[i], "markevery": (4 + 2 * i, 24)}  # seen in grey too
        for direction, dash in DASHES.items():
            one = part.sel(spectrum=spectrum, direction=direction)
            label = str(spectrum) if direction == "weak" else None
            left.plot(part.length, one.exact * part.length, ls=dash, label=label, **style, **marks)
            middle.plot(part.length, np.sqrt(one.exact / one["size"]), ls=dash, **style, **marks)
            right.plot(part.length, one.exact * part.length / (one.trace + one["size"]), ls=dash, **style, **marks)
    for direction, dash in DASHES.items():
        middle.plot([], [], color="0.3", ls=dash, lw=1.0, label=f"{direction} direction")
    level = np.exp(variance)
    right.axhline(level, color="0.6", lw=0.8)
    right.text(float(part.length[-1]), level * 0.985, r"$e^{\sigma^2}$", ha="right", va="top", fontsize=9, color="0.35")
    error, length = r"L\,\mathbf{E}\,\|T_L-T\|^2", "prompt length $L$"
    describe(left, length, f"${error}$", rf"$\sigma^2={variance:g}$, tr $\Gamma=d$", log="xy")
    words = (r"relative error $(\mathbf{E}\,\|T_L-T\|^2)^{1/2}/\|T\|$", "relative to the output")
    describe(middle, length, *words, log="xy")
    describe(right, length, rf"${error}/(\mathrm{{tr}}\,\Gamma+\|\Gamma u\|^2)$", "over the two traces", log="x")
    ticks(left, "y", (20, 50, 100, 200))
    left.legend(fontsize=6.5, loc="lower right")
    middle.axhline(0.1, color="0.6", lw=0.8)
    middle.legend(fontsize=7, loc="lower left")


@study_figure(
    "constants",
    "Constants of the paper's form fitted to each spectrum, direction and score variance; and the decay exponent for "
    "random queries of one mean score variance, whose H² the largest eigenvalue sets.",
    size=(7.6, 3.3),
    panels=(1, 3),
    width_ratios=(1, 1, 1.25),
)
def constants(data: xr.Dataset, left: Axes, middle: Axes, right: Axes) -> None:
    """Fitted c1 and c2 by spectrum and direction, and the exponent for random queries against H²."""
    rows = np.arange(data.sizes["spectrum"])[::-1]
    for i, variance in enumerate(data.score_variance.values):
        for j, direction in enumerate(data.direction.values):
            part = data.sel(score_variance=variance, direction=direction)
            for axes, constant in ((left, part.c2), (middle, part.c1)):
                axes.plot(constant, rows + 0.2 * (1 - j), MARKERS[j], color=COLOURS[i], mfc="none" if j else COLOURS[i], ms=4)
        left.plot([], [], "s", color=COLOURS[i], label=rf"$\sigma^2={variance:g}$")
    for j, direction in enumerate(data.direction.values):
        middle.plot([], [], MARKERS[j], color="0.3", mfc="none" if j else "0.3", ms=4, label=str(direction))
    left.set_yticks(rows, data.spectrum.values)
    middle.set_yticks(rows, [])
    for axes, name in ((left, "c_2"), (middle, "c_1")):
        axes.set(xscale="log", xlabel=f"${name}$, fitted")
        axes.legend(fontsize=7, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, columnspacing=1.0, handletextpad=0.2)
    ticks(left, "x", (0.5, 1, 2, 4))
    square = np.linspace(0.02, float(data.random_square.max()) * 1.1, 300)
    right.plot(square, sharp_exponent(square), color="black", label="$g(H)$, predicted")
    last = data.sizes["decade_end"] - 1
    for i, k in enumerate(sorted({0, last // 2, last})):
        label = rf"exact, $L=10^{{{int(data.decade[k])}}}$ to $10^{{{int(data.decade_end[k])}}}$"
        right.plot(data.random_square, data.random_exponent.isel(decade_end=k), MARKERS[i], color=COLOURS[i], label=label)
    title = rf"random queries, mean $\sigma^2={float(data.mean_score_variance):g}$"
    describe(right, r"$H^2$, set by $\lambda_{\max}$", "decay exponent", title, legend=7, loc="lower left", ylim=(0, 1.1))


FIGURES = (collapse, constants)
