"""Discrete training against the flow: gradient descent over step sizes, SGD over batches, Adam and
the flows that it follows.
"""

import numpy as np
import xarray as xr

from largeprompt.runs.style import (
    COLOURS,
    DASHES,
    MARKERS,
    Axes,
    curves,
    describe,
    entry,
    length_label,
    marks,
    panels,
    study_figure,
)
from largeprompt.studies.discrete.formulas import most_common, usual


def _gaps(data: xr.Dataset, axes: Axes) -> None:
    """Largest distance of descent to the flow and to the modified flow against the step size,
    softmax attention.
    """
    part = data.sel(attention="softmax")
    steps, bent = np.sort(part.step_size.values), np.sort(part.modified_step_size.values)
    for i, length, one in curves(part, "length"):
        axes.plot(steps, float(one.predicted_gap) * steps, color=COLOURS[i], ls=DASHES[i], lw=1.0)
        axes.plot(one.step_size, one.gap, MARKERS[i], color=COLOURS[i], label=length_label(length))
        axes.plot(
            one.modified_step_size, one.modified_gap, MARKERS[i], color=COLOURS[i], mfc="none"
        )
    level = float(part.modified_gap.isel(length=-1).sel(modified_step_size=bent[0]))
    axes.plot(bent, level * (bent / bent[0]) ** 2, color="0.6", lw=0.9, ls=":", label="slope 2")
    entry(axes, "to the flow", marker="o", ls="none")
    entry(axes, "to the modified flow", marker="o", ls="none", mfc="none")
    entry(axes, "predicted")
    distance = r"$\sup_t\,\|\theta_{\rm GD}-\theta\|$"
    describe(axes, r"step size $\eta$", distance, "gradient descent", log="xy", legend=7, below=2)


@study_figure(
    "descent",
    "Left: largest distance of gradient descent to the flow (filled) and to the modified flow "
    "(open), softmax, with the predicted first order. Middle: largest Hessian eigenvalue along "
    "the flow. Right: mean sharpness at the end of descent with large steps, both axes in units "
    "of the end point of the flow.",
    size=(9.6, 3.4),
    panels=(1, 3),
    cards={"N2": 0},
)
def descent(data: xr.Dataset, left: Axes, middle: Axes, right: Axes) -> None:
    """Gap over step sizes with its prediction, sharpness along the flow, and where
    large steps end.
    """
    _gaps(data, left)
    shown = data.isel(settling=slice(1, None))
    for i, length, one in curves(shown, "length"):
        colour, label = COLOURS[i], length_label(length)
        middle.plot(one.settling, one.sharpness, color=colour, ls=DASHES[i], label=label)
        ratio = one.large_sharpness * one.stable_step / 2
        right.plot(one.large_step / one.stable_step, ratio, MARKERS[i], color=colour, label=label)
    describe(
        middle,
        "time $t$",
        "largest Hessian eigenvalue",
        "sharpness along the flow",
        log="x",
        legend=7,
        below=3,
    )
    x = np.linspace(float(data.multiple.min()), float(data.multiple.max()), 101)
    right.plot(
        x, np.minimum(1, 1 / x), color="0.3", lw=1.0, label=r"$\min(1,\,2/\eta\lambda_{\max})$"
    )
    right.axvline(1.0, color="0.8", lw=0.8, zorder=0)
    words = (
        r"$\eta$ over $2/\lambda_{\max}$",
        r"sharpness at the end over $\lambda_{\max}$",
        "large steps",
    )
    describe(right, *words, legend=7, below=2)


def _batches(data: xr.Dataset, axes: Axes) -> None:
    """Root mean squared gap of SGD against η/B, with the law."""
    noise, step_size = (
        (data.batch_step_size / data.batch_size).values,
        most_common(data.batch_step_size),
    )
    order, same = np.argsort(noise), data.batch_step_size.values == step_size
    axes.plot(
        noise[order], data.predicted_sgd_gap.values[order], color="0.3", lw=1.0, label="predicted"
    )
    for i, (chosen, label) in enumerate(
        ((same, rf"$\eta={step_size:g}$, $B$ varies"), (~same, r"$\eta$ varies"))
    ):
        if chosen.any():
            gap, error = data.sgd_gap.values[chosen], data.sgd_gap_error.values[chosen]
            marks(axes, i, noise[chosen], gap, 2 * error, label, ms=4.5)
    describe(
        axes,
        r"$\eta/B$",
        r"root mean square $\|\theta_{\rm SGD}-\theta\|$",
        "SGD",
        log="xy",
        legend=7,
        below=2,
    )


def _wander(data: xr.Dataset, axes: Axes) -> None:
    """Variance between runs along the slow direction, against time."""
    for i, case, one in curves(data, "wander_case"):
        kind, length = str(case).split()
        axes.plot(one.wander_time, one.predicted_wander, color=COLOURS[i], ls=DASHES[i], lw=1.0)
        few = one.isel(wander_time=slice(None, None, max(1, one.sizes["wander_time"] // 10)))
        marks(
            axes,
            i,
            few.wander_time,
            few.wander,
            2 * few.wander_error,
            f"{kind}, $L={length}$",
            ms=4.5,
        )
    describe(
        axes, "time $t$", r"variance of $\|V\|^2-\|U\|^2$", "slow direction", legend=7, below=2
    )


def _authors(data: xr.Dataset, axes: Axes) -> None:
    """The law at the authors' settings, in parameters and risk, with runs over its first part."""
    shown = data.isel(paper_time=slice(1, None), paper_step=slice(1, None))
    time, root = shown.paper_time, np.sqrt(shown.paper_spread)
    axes.plot(time, shown.paper_law, color=COLOURS[0], label="parameters, rms")
    marks(axes, 0, shown.paper_step, root, shown.paper_spread_error / root, "runs ± 2 s.e.", ms=3.5)
    deviation, excess = (
        abs(shown[name]) / shown.paper_risk for name in ("paper_deviation", "paper_excess")
    )
    axes.plot(time, deviation, color=COLOURS[1], ls=DASHES[1], label="risk between runs, relative")
    axes.plot(time, excess, color=COLOURS[2], ls=DASHES[2], label="mean risk, relative")
    describe(
        axes,
        "time $t$",
        "predicted gap to the flow",
        "the authors' SGD",
        log="xy",
        legend=7,
        below=2,
    )


sgd = panels(
    "sgd",
    "Left: root mean squared distance of SGD to the flow against step size over batch size, with "
    "the law. Middle: variance between runs along the slow direction, predicted (lines) and drawn "
    "(marks). Right: the law at the authors' settings to the end of their training, with runs "
    "over its first part.",
    _batches,
    _wander,
    _authors,
    size=(9.6, 3.5),
)


@study_figure(
    "adam",
    "Left: largest distance of Adam to the sign flow and to its flow with memory against the step "
    "size. Right: read-out b along Adam and the flows, and where the gradient flow ends.",
    size=(7.6, 3.9),
)
def adam(data: xr.Dataset, left: Axes, right: Axes) -> None:
    """Distance of Adam to its two flows over step sizes, and the read-out b along training."""
    for i, length, one in curves(data, "adam_length"):
        words = length_label(length)
        left.plot(
            one.adam_step_size,
            one.sign_gap,
            MARKERS[i] + "-",
            color=COLOURS[i],
            label=f"sign flow, {words}",
        )
        label = f"flow with memory, {words}"
        left.plot(
            one.adam_step_size,
            one.memory_gap,
            MARKERS[i] + "--",
            color=COLOURS[i],
            mfc="none",
            label=label,
        )
    left.plot(
        data.sign_step_size,
        data.early_sign_gap,
        "D",
        color=COLOURS[5],
        ms=3.5,
        label="sign flow, before a switch",
    )
    early = data.predicted_sign_gap.sortby("sign_step_size")
    left.plot(early.sign_step_size, early, color=COLOURS[5], lw=1.0, label="predicted")
    distance = r"$\sup_t\,\|\theta_{\rm Adam}-\theta\|$"
    describe(
        left, r"step size $\eta$", distance, "Adam against its flows", log="xy", legend=7, below=2
    )
    common = usual(data)
    one = data.isel(adam_length=-1).sel(adam_step_size=common)
    few = one.isel(adam_time=slice(None, None, max(1, one.sizes["adam_time"] // 20)))
    right.plot(one.adam_time, one.memory_b, color=COLOURS[0], label="flow with memory")
    label = rf"Adam, $\eta={common:g}$"
    right.plot(
        few.adam_time, few.adam_b, "o", color=COLOURS[1], ms=3.5, mec="0.2", mew=0.4, label=label
    )
    right.plot(one.adam_time, one.sign_b, color=COLOURS[5], ls="--", label="sign flow")
    right.axhline(float(one.flow_b), color="0.6", lw=0.9, ls=":", label="end of the gradient flow")
    describe(
        right,
        r"time (steps times $\eta$)",
        "$b$",
        length_label(float(one.adam_length)),
        legend=7,
        below=2,
    )


FIGURES = (descent, sgd, adam)
