"""Training on long prompts: the tube, the paths of the parameters, and the excess
risk against L.
"""

import numpy as np
import xarray as xr

from largeprompt.runs.style import (
    COLOURS,
    MARKERS,
    Axes,
    curves,
    describe,
    entry,
    length_label,
    look,
    study_figure,
)

ATTENTIONS = ("softmax", "linear")


@study_figure(
    "tube",
    "Distance of the flow at length L to the infinite-prompt flow: in time with its Grönwall "
    "envelope (dotted), and its supremum against L for both attentions.",
    size=(7.6, 3.2),
    cards={"C5": 0},
)
def tube(data: xr.Dataset, left: Axes, right: Axes) -> None:
    """Distance to the infinite-prompt flow: in time, with its envelope, for softmax; its supremum
    against L for both attentions.
    """
    shown = data.isel(time=slice(1, None))
    for i, length in enumerate(data.length.values):
        left.plot(
            shown.time,
            shown.softmax_distance.isel(length=i),
            color=COLOURS[i],
            label=length_label(length),
        )
        left.plot(shown.time, shown.softmax_envelope.isel(length=i), color=COLOURS[i], ls=":")
    entry(left, "Grönwall envelope", ls=":")
    words = ("time $t$", r"$\|\theta_L(t)-\theta_\infty(t)\|$", "softmax attention")
    describe(left, *words, log="xy", legend=7, ncols=2, ylim=(1e-5, None))
    for i, kind in enumerate(ATTENTIONS):
        sup, bound = (data[f"{kind}_{name}"].max("time") for name in ("distance", "envelope"))
        right.plot(data.length, sup, MARKERS[i] + "-", color=COLOURS[i], label=kind)
        right.plot(
            data.length,
            bound,
            MARKERS[i] + ":",
            color=COLOURS[i],
            mfc="none",
            label=f"{kind}, envelope",
        )
    x, y = data.length.values.astype(float), float(data.linear_distance.max("time")[-1])
    right.plot(x, y * x[-1] / x, color="0.6", lw=0.9, ls="--", label="slope $-1$")
    words = (
        "prompt length $L$",
        r"$\sup_t\,\|\theta_L-\theta_\infty\|$",
        f"up to $t={data.time[-1]:g}$",
    )
    describe(right, *words, log="xy", legend=7.5)


def _entries(data: xr.Dataset) -> list[str]:
    """The parameters that are shown."""
    return [name for name in ("A[0, 0]", "A[0, 1]", "b") if name in data.parameter.values]


@study_figure(
    "parameters",
    "Entries of A and the read-out b along training; solid softmax, dashed linear attention.",
    size=(7.6, 2.8),
    panels=lambda data: (1, len(_entries(data))),
)
def parameters(data: xr.Dataset, *panels: Axes) -> None:
    """The read-out b and the first entries of A along training, softmax and linear attention,
    several lengths.
    """
    chosen = sorted({0, len(data.length) // 3, 2 * len(data.length) // 3})
    for axes, name in zip(panels, _entries(data), strict=True):
        for colour, i in zip(COLOURS, chosen, strict=False):
            for kind, dash in zip(ATTENTIONS, ("-", "--"), strict=True):
                path = data[f"{kind}_theta"].sel(parameter=name).isel(length=i)
                axes.plot(
                    data.time,
                    path,
                    dash,
                    color=colour,
                    label=f"{length_label(data.length.values[i])}, {kind}",
                )
        limit = data.softmax_limit_theta.sel(parameter=name)
        axes.plot(data.time, limit, color="black", lw=2.2, alpha=0.45, label=length_label(np.inf))
        title = "$b$" if name == "b" else f"$A_{{{int(name[2]) + 1}{int(name[5]) + 1}}}$"
        axes.set(xlabel="time $t$", title=title, xlim=(0, min(8.0, float(data.time[-1]))))
    panels[0].legend(fontsize=6.5, loc="lower right")


@study_figure(
    "excess",
    "Excess risk against L for identity covariance: at the optimum of each length, softmax above "
    "linear by a constant factor; and for softmax at the infinite-prompt endpoint, where it falls "
    "more slowly than 1/L in low dimension.",
    size=(7.6, 3.2),
    cards={"C7": 0},
    sharey=True,
)
def excess(data: xr.Dataset, left: Axes, right: Axes) -> None:
    """Excess risk against L for identity covariance, at the optimum of each length and at the
    infinite-prompt endpoint.
    """
    for i, d, row in curves(data, "dim"):
        label = f"$d={d}$"
        left.plot(row.excess_length, row.softmax_best, color=COLOURS[i], label=label)
        left.plot(row.excess_length, row.linear_best, color=COLOURS[i], ls="--")
        right.plot(row.excess_length, row.softmax_at_limit_endpoint, label=label, **look(i, ms=3))
    entry(left, "softmax")
    entry(left, "linear", ls="--")
    x = data.excess_length.values.astype(float)
    right.plot(x, 30 / x, color="0.6", lw=0.9, ls="--", label="slope $-1$")
    left.set(title="trained to the optimum of its length", ylabel="excess risk")
    right.set(title="softmax at the infinite-prompt endpoint")
    for axes in (left, right):
        describe(axes, "prompt length $L$", log="xy", legend=7.5)


FIGURES = (tube, parameters, excess)
