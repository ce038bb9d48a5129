"""Errors of output and derivatives against prompt length: exact, certified, drawn, first order, and
the paper's form.
"""

import numpy as np
import xarray as xr

from largeprompt.runs.style import (
    COLOURS,
    DASHES,
    Axes,
    curves,
    describe,
    marks,
    study_figure,
    ticks,
)
from largeprompt.studies.convergence.formulas import LOGS, SLOPES, paper_form

LABELS = {"output": "output", "jacobian_u": r"$\partial_U$", "jacobian_v": r"$\partial_V$"}
ERRORS = {
    "output": r"$\mathbf{E}\,\|T_L-T\|^2$",
    "jacobian_u": r"$\mathbf{E}\,\|\partial_U T_L-\partial_U T\|^2$",
}


def draw_errors(data: xr.Dataset, quantity: str, axes: Axes) -> None:
    """One quantity at one score variance: exact, certified, first order (output), the paper's form
    as fitted here, samples.
    """
    variance, part = float(data.score_variance), data.sel(quantity=quantity)
    c1, c2 = (float(part[name].sel(interval="exact")) for name in ("c1", "c2"))
    form = np.where(
        data.length > 1, paper_form(data.length, variance, c1, c2, LOGS[quantity]), np.nan
    )
    axes.plot(data.length, part.certified, color=COLOURS[5], lw=1.2, ls="-.", label="certified")
    if quantity == "output":
        axes.plot(data.length, data.first_order, color="0.55", lw=1.0, ls="--", label="first order")
    axes.plot(data.length, form, color=COLOURS[3], lw=1.1, ls=":", label="paper's form, fitted")
    axes.plot(data.length, part.exact, color=COLOURS[0], lw=1.6, label="exact")
    error = 2 * part.sampled_standard_error
    marks(
        axes,
        1,
        data.sampled_length,
        part.sampled,
        error,
        "drawn ± 2 s.e.",
        marker="o",
        mec="0.2",
        mew=0.4,
    )
    limits = (float(part.exact.min()) / 3, 60 * float(part.exact.max()))
    describe(
        axes,
        title=rf"$\sigma^2={variance:g}$:  $c_1={c1:.2g}$, $c_2={c2:.2f}$",
        log="xy",
        ylim=limits,
    )
    axes.axvline(np.exp(2 * variance), color="0.8", lw=0.8, zorder=0)


@study_figure(
    "convergence",
    "Mean squared distance to the limit against L for three score variances: output (above) and "
    "derivative in U (below). Exact law, proved bound, drawn prompts, first order, and the "
    "paper's form with constants fitted to the exact law at the lengths drawn. The grey line is L "
    "= e^(2σ²), from which on the prompt is in the linear regime.",
    size=lambda data: (2.5 * data.sizes["score_variance"] + 0.3, 5.0),
    panels=lambda data: (len(ERRORS), data.sizes["score_variance"]),
    cards={"C3": 0, "C4": -3},
    sharex=True,
)
def convergence(data: xr.Dataset, *panels: Axes) -> None:
    """Output above, derivative in U below, one column for each score variance; grey line: L =
    e^{2σ²}, where 'linear' begins.
    """
    count = data.sizes["score_variance"]
    for i, (quantity, label) in enumerate(ERRORS.items()):
        row = panels[i * count : (i + 1) * count]
        for axes, variance in zip(row, data.score_variance.values, strict=True):
            draw_errors(data.sel(score_variance=variance), quantity, axes)
        row[0].set_ylabel(label)
    for axes in row:
        axes.set_xlabel("prompt length $L$")
    panels[0].legend(fontsize=7, loc="lower left")


@study_figure(
    "constants",
    "Slope in L and the constants of the paper's form, fitted to the exact law, bars: 95 % of "
    "resampled streams of drawn prompts; neither c1 nor c2 is the same for all score variances. "
    "Grey: slopes that a public audit found.",
    size=(7.6, 2.7),
    panels=(1, 3),
)
def constants(data: xr.Dataset, left: Axes, middle: Axes, right: Axes) -> None:
    """Slope, c2 and c1 of the exact law against score variance, output and both derivatives, with
    intervals of drawn prompts.
    """
    variance = data.score_variance.values.astype(float)
    for axes, name in ((left, "slope"), (middle, "c2"), (right, "c1")):
        for i, quantity, part in curves(data[name], "quantity"):
            found, low, high = (
                part.sel(interval=each).values for each in ("exact", "lower", "upper")
            )
            spread, shifted = (
                np.maximum(np.stack([found - low, high - found]), 0.0),
                variance * 1.04 ** (i - 1),
            )
            marks(axes, i, shifted, found, spread, LABELS[str(quantity)], ls=DASHES[i], lw=0.9)
        describe(axes, r"score variance $\sigma^2$", log="x")
        ticks(axes, "x", variance)
    left.axhspan(*SLOPES, color="0.9", zorder=0)
    left.text(variance[0] * 0.95, -1.1, "public audit", fontsize=7.5, color="0.35", va="bottom")
    left.set_ylabel("slope of the squared error in $L$")
    middle.plot(variance, variance, color="0.6", lw=0.8, ls="--", label=r"$c_2=\sigma^2$")
    describe(middle, "", "$c_2$, fitted", log="y", legend=7.5)
    ticks(middle, "y", (0.5, 1, 2, 4, 8))
    describe(right, "", "$c_1$, fitted", log="y")


FIGURES = (convergence, constants)
