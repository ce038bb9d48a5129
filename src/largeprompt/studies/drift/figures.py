"""The slow drift of a long prompt's gradient flow."""

import numpy as np
import xarray as xr

from largeprompt.runs.style import (
    COLOURS,
    DASHES,
    MARKERS,
    Axes,
    describe,
    entry,
    length_label,
    study_figure,
)


@study_figure(
    "drift",
    "Read-out b and risk against time: after the fast approach the parameters of every finite "
    "length drift for a time of order L, to the optimum of their own length (marks), which is not "
    "the infinite prompt's endpoint.",
)
def drift(data: xr.Dataset, left: Axes, right: Axes) -> None:
    """Read-out b and excess risk against time on logarithmic axes, one curve for each length."""
    shown = data.isel(time=slice(1, None))
    for i, length in enumerate(data.length.values):
        colour, dash = ("black", "-") if np.isinf(length) else (COLOURS[i], DASHES[i])
        left.plot(
            shown.time, shown.b.isel(length=i), color=colour, ls=dash, label=length_label(length)
        )
        if np.isfinite(length):
            left.plot(
                shown.time[-1:],
                [float(data.optimal_b[i])],
                MARKERS[i],
                color=colour,
                ms=5,
                mfc="none",
                clip_on=False,
            )
        right.plot(shown.time, np.maximum(shown.risk.isel(length=i), 1e-12), color=colour, ls=dash)
    entry(left, "optimum at $L$", marker="o", ls="none", mfc="none")
    left.axhline(float(data.predicted_b), color="0.6", lw=0.8, ls=":")
    left.text(
        0.12,
        float(data.predicted_b) + 0.03,
        r"$\mathrm{tr}(\Sigma^{-2})^{1/4}$",
        fontsize=8,
        color="0.35",
    )
    describe(
        left,
        "time $t$",
        "read-out $b(t)$",
        "the parameters drift for a time of order $L$",
        log="x",
        legend=9,
    )
    describe(right, "time $t$", "risk", "and the risk falls on the way", log="xy", ylim=(1e-7, 3))


FIGURES = (drift,)
