"""Where the infinite-prompt flow ends."""

import numpy as np
import xarray as xr

from largeprompt.runs.style import COLOURS, MARKERS, Axes, describe, study_figure


@study_figure(
    "endpoint",
    "b at the end of the infinite-prompt flow from five starts, and the errors of the balanced "
    "one.",
    cards={"C6": 0},
    size=lambda data: (7.6, 2.0 + 0.28 * data.sizes["cell"]),
)
def endpoint(data: xr.Dataset, left: Axes, right: Axes) -> None:
    """b at the end, in units of the theorem's, for every start; and the errors of
    the balanced one.
    """
    rows = np.arange(data.sizes["cell"])[::-1]
    for i, start in enumerate(data.start.values):
        left.plot(
            data.b.sel(start=start) / data.theorem_b,
            rows,
            MARKERS[i],
            color=COLOURS[i],
            label=start,
            mfc="none",
        )
    left.axvline(1.0, color="0.6", lw=0.8)
    left.set_yticks(rows, data.cell.values)
    words = (r"$b(\infty)\,/\,\mathrm{tr}(\Sigma^{-2})^{1/4}$", "", "where each start ends")
    describe(left, *words, ylim=(-0.6, rows[0] + 0.6), legend=7, below=2)
    good = data.sel(start="balanced")
    for i, (name, label) in enumerate(
        (("b_error", "$b$"), ("A_error", "$A$"), ("drift", r"$b^2-\|A\|^2$"))
    ):
        right.plot(
            np.maximum(good[name], 1e-16),
            rows,
            MARKERS[i],
            color=COLOURS[i],
            label=label,
            mfc="none",
        )
    right.axvline(1e-6, color="0.5", lw=0.8, ls="--")
    right.set_yticks(rows, [])
    describe(
        right,
        "relative error",
        "",
        "balanced start, against the theorem",
        log="x",
        legend=7,
        ylim=left.get_ylim(),
        below=3,
    )


FIGURES = (endpoint,)
