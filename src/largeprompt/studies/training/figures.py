"""Training on long prompts: the tube, the gradients, the excess risk, the end, other inputs."""

import numpy as np
import xarray as xr

from largeprompt.runs.style import (
    COLORS,
    DASHES,
    Axes,
    curves,
    describe,
    entry,
    length_label,
    look,
    study_figure,
)

ATTENTIONS = ("softmax", "linear")
LENGTH = "prompt length $L$"


def _slope(axes: Axes, x: np.ndarray, end: float) -> None:
    """A grey line of slope -1 that ends at this height."""
    axes.plot(x, end * x[-1] / x, color="0.6", lw=0.9, ls="--", label="slope $-1$")


@study_figure(
    "tube",
    "Distance of the flow at length L to the infinite-prompt flow, with its Grönwall envelope "
    "(dotted): in time, and its supremum against L.",
    size=(7.6, 3.4),
    cards={"C5": 0, "E2": 1},
)
def tube(data: xr.Dataset, left: Axes, right: Axes) -> None:
    """Distance in time for softmax; its supremum against L for both attentions."""
    for i, length, one in curves(data.isel(time=slice(1, None)), "length"):
        left.plot(one.time, one.softmax_distance, color=COLORS[i], label=length_label(length))
        left.plot(one.time, one.softmax_envelope, color=COLORS[i], ls=":")
    entry(left, "envelope", ls=":")
    words = ("time $t$", r"$\|\theta_L(t)-\theta_\infty(t)\|$", "softmax attention")
    describe(left, *words, log="xy", legend=7, below=3, ylim=(1e-5, None))
    for i, kind in enumerate(ATTENTIONS):
        sup, bound = (data[f"{kind}_{name}"].max("time") for name in ("distance", "envelope"))
        right.plot(data.length, sup, label=kind, **look(i))
        right.plot(data.length, bound, label=f"{kind}, envelope", ls=":", mfc="none", **look(i))
    _slope(right, data.length.values.astype(float), float(sup[-1]))
    words = (LENGTH, r"$\sup_t\,\|\theta_L-\theta_\infty\|$", f"up to $t={data.time[-1]:g}$")
    describe(right, *words, log="xy", legend=7, below=3)


@study_figure(
    "gradients",
    "The critical path: gradients at length L where the infinite-prompt flow passes, against its "
    "own: one minus their cosine, and their relative distance. Dashed: linear attention.",
    size=(7.6, 3.4),
)
def gradients(data: xr.Dataset, left: Axes, right: Axes) -> None:
    """One minus the cosine and relative distance against L, one curve for each time."""
    for kind, dash in zip(ATTENTIONS, ("-", "--"), strict=True):
        for i, time, one in curves(data, "gradient_time"):
            angle = np.maximum(1 - one[f"{kind}_gradient_cosine"], 1e-16)
            label = f"$t={time:g}$" if dash == "-" else None
            left.plot(one.gradient_length, angle, dash, label=label, **look(i, ms=3))
            distance = one[f"{kind}_gradient_distance"]
            right.plot(one.gradient_length, distance, dash, **look(i, ms=3))
    entry(right, "softmax")
    entry(right, "linear", ls="--")
    cosine = r"$1-\cos(\nabla R_L,\nabla R_\infty)$"
    describe(left, LENGTH, cosine, log="xy", legend=7, below=5, ylim=(1e-11, 3))
    distance = r"$\|\nabla R_L-\nabla R_\infty\|\,/\,\|\nabla R_\infty\|$"
    describe(right, LENGTH, distance, log="xy", legend=7, below=2)


@study_figure(
    "excess",
    "Excess risk against L for identity covariance: at the optimum of each length, and for softmax "
    "at the infinite-prompt end point.",
    size=(7.6, 3.2),
    cards={"C7": 0},
    sharey=True,
)
def excess(data: xr.Dataset, left: Axes, right: Axes) -> None:
    """Excess risk at the optimum of each length, and at the infinite-prompt end point."""
    for i, d, row in curves(data, "dim"):
        left.plot(row.excess_length, row.softmax_best, color=COLORS[i], label=f"$d={d}$")
        left.plot(row.excess_length, row.linear_best, color=COLORS[i], ls="--")
        limit = row.softmax_at_limit_endpoint
        right.plot(row.excess_length, limit, label=f"$d={d}$", **look(i, ms=3))
    entry(left, "softmax")
    entry(left, "linear", ls="--")
    x = data.excess_length.values.astype(float)
    _slope(right, x, 30 / x[-1])
    describe(left, LENGTH, "excess risk", "at the optimum of each length", log="xy", legend=7)
    describe(right, LENGTH, "", "at the infinite prompt's end point", log="xy", legend=7)


@study_figure(
    "drift",
    "Read-out b and excess risk against time: after the fast approach the parameters of every "
    "finite length drift to the optimum of their own length (marks); the risk falls on the way.",
    cards={"C6": 1},
)
def drift(data: xr.Dataset, left: Axes, right: Axes) -> None:
    """Read-out b and excess risk against time, one curve for each length."""
    for i, length, one in curves(data, "drift_length"):
        color, dash = ("black", "-") if np.isinf(length) else (COLORS[i], DASHES[i])
        left.plot(one.drift_time, one.drift_b, color=color, ls=dash, label=length_label(length))
        right.plot(one.drift_time, np.maximum(one.drift_risk, 1e-12), color=color, ls=dash)
        if np.isfinite(length):
            optimum = [float(one.drift_optimal_b)]
            left.plot(one.drift_time[-1:], optimum, clip_on=False, mfc="none", **look(i, ms=5))
    entry(left, "optimum at $L$", marker="o", ls="none", mfc="none")
    theorem = float(data.drift_theorem_b)
    left.axhline(theorem, color="0.6", lw=0.8, ls=":")
    left.text(0.12, theorem + 0.03, r"$\mathrm{tr}(\Sigma^{-2})^{1/4}$", fontsize=8, color="0.35")
    title = "the parameters drift for a time of order $L$"
    describe(left, "time $t$", "read-out $b(t)$", title, log="x", legend=7, below=3)
    title = "and the risk falls on the way"
    describe(right, "time $t$", "excess risk", title, log="xy", ylim=(1e-7, 3))


FIGURES = (tube, gradients, excess, drift)
