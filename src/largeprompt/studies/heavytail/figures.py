"""Heavy tails: effective tokens against length, where laws break, and training."""

import math
from typing import Any

import numpy as np
import xarray as xr

from largeprompt.runs.style import (
    COLORS,
    DASHES,
    Axes,
    curves,
    describe,
    entry,
    look,
    study_figure,
    ticks,
)
from largeprompt.studies.heavytail.rules import cases, middle_tilt

LENGTH = "prompt length $L$"


def _label(df: float) -> str:
    return r"df $=\infty$" if math.isinf(df) else f"df = {df:g}"


def _students(data: xr.Dataset) -> xr.Dataset:
    """Student-t cases at the middle tilt, lightest tails first."""
    chosen = cases(data, (data.tilt == middle_tilt(data)) & data.df.notnull())
    return chosen.sortby("df", ascending=False)


@study_figure(
    "tails",
    "Lines: exact; marks: drawn prompts; dotted: predicted as L grows. Left: effective tokens of "
    "Student-t prompts, which for every finite df fall to one. Middle: Σ w² of Laplace prompts on "
    "either side of the edge √2. Right: how the weights of Student-t prompts become argmax.",
    size=(9.6, 3.7),
    panels=(1, 3),
    cards={"N3": 0},
)
def tails(data: xr.Dataset, left: Axes, middle: Axes, right: Axes) -> None:
    """Effective tokens of Student-t; Σ w² of Laplace; distance of Student-t weights from argmax."""
    mark = {"ls": "none", "ms": 3.5, "mec": "0.2", "mew": 0.3}
    tilt, students = middle_tilt(data), _students(data)
    for i, df, case in curves(students.swap_dims(case="df"), "df"):
        line: dict[str, Any] = {"color": COLORS[i], "ls": DASHES[i], "label": _label(df)}
        left.plot(case.grid, 1 / case.curve, **line)
        left.plot(case.length, 1 / case.sampled, **look(i, **mark))
        if df <= 5:
            right.plot(case.grid, (1 - case.curve).where(1 - case.curve > 1e-10), **line)
            right.plot(case.grid, (1 - case.asymptote).clip(max=3), color="0.4", lw=0.7, ls=":")
    laplace = cases(data, data.law == "Laplace")
    for i, u, case in curves(laplace.swap_dims(case="tilt"), "tilt"):
        middle.plot(case.grid, case.curve, color=COLORS[i], ls=DASHES[i], label=f"$u={u:g}$")
        middle.plot(case.length, case.sampled, **look(i, **mark))
        middle.plot(case.grid, case.asymptote, color="0.4", lw=0.7, ls=":", zorder=1)
    entry(left, "drawn", marker="o", ls="none", ms=3.5)
    for axes in (middle, right):
        entry(axes, "as $L$ grows", lw=0.7, ls=":")
    words = (LENGTH, r"effective tokens $1/\mathbf{E}\,\Sigma w^2$", f"Student-t, $u={tilt:g}$")
    describe(left, *words, log="xy", legend=7, below=3, ylim=(0.8, 3e5))
    words = (LENGTH, r"$\mathbf{E}\,\Sigma w^2$", r"Laplace, edge $\sqrt{2}$")
    describe(middle, *words, log="xy", legend=7, below=3, ylim=(1e-14, 2))
    words = (LENGTH, r"$1-\mathbf{E}\,\Sigma w^2$", f"toward argmax, $u={tilt:g}$")
    describe(right, *words, log="xy", legend=7, below=3, ylim=(1e-9, 3))


@study_figure(
    "breakdown",
    "Left: df below which Σ w² is twice that of Gaussian tokens, exact. Right: risk at the end of "
    "training against df: SGD (median, 10 to 90 %), exact gradient descent, and the least risk.",
    size=(7.6, 3.4),
)
def breakdown(data: xr.Dataset, left: Axes, right: Axes) -> None:
    """df below which a prompt breaks, against length; risk of training against df."""
    for i, tilt, row in curves(data, "breakdown_tilt"):
        left.plot(row.grid, row.breakdown, color=COLORS[i], ls=DASHES[i], label=f"$u={tilt:g}$")
    words = (LENGTH, "df below which prompts break")
    describe(left, *words, log="xy", legend=7, below=3, ylim=(2, 300))
    ticks(left, "y", (2, 5, 10, 20, 50, 100, 200))
    part = data.isel(training_df=np.argsort(-data.training_df.values))
    place = np.arange(part.sizes["training_df"])
    runs = part.run_risk.where(np.isfinite(part.run_risk), 1e3)
    low, middle, high = runs.quantile((0.1, 0.5, 0.9), "run").values
    seen = middle < 1e2
    spread = np.stack([middle - low, high - middle])[:, seen]
    right.errorbar(place[seen], middle[seen], spread, label="SGD", **look(1, ls="none", ms=4))
    finite = part.isel(training_df=np.isfinite(part.descent_risk.values))
    inside = place[: finite.sizes["training_df"]]
    right.plot(inside, finite.descent_risk, color=COLORS[0], label="exact descent")
    right.plot(inside, finite.least_risk, color=COLORS[2], ls="--", label="least risk")
    for x, share in enumerate(100 * part.diverged.astype(float).mean("run").values):
        if share:
            lost = f"{share:.0f} % of\nSGD lost"
            right.text(x, 0.5, lost, ha="center", fontsize=7, color="0.35")
    names = [r"$\infty$" if math.isinf(df) else f"{df:g}" for df in part.training_df.values]
    describe(right, "df of the inputs", "risk at the end", log="y", legend=7, below=3)
    right.set(xlim=(-0.5, len(place) - 0.5), ylim=(0.05, 1))
    right.set_xticks(place, names)


FIGURES = (tails, breakdown)
