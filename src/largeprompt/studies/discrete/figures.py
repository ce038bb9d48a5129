"""Discrete training against the flow: gradient descent over step sizes, SGD over batches, Adam and the flows that it follows."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from largeprompt.runs.style import COLOURS, DASHES, MARKERS, house_style, length_label


def _gaps(data: xr.Dataset, axes: Axes) -> None:
    """Largest distance of descent to the flow and to the modified flow against the step size, softmax attention."""
    part = data.sel(attention="softmax")
    steps = np.sort(part.step_size.values)
    for i, length in enumerate(part.length.values):
        one, colour = part.sel(length=length), COLOURS[i % len(COLOURS)]
        axes.plot(steps, float(one.predicted_gap) * steps, color=colour, ls=DASHES[i % 4], lw=1.0)
        axes.plot(one.step_size, one.gap, MARKERS[i], color=colour, label=length_label(length))
        axes.plot(one.modified_step_size, one.modified_gap, MARKERS[i], color=colour, mfc="none")
    reference = part.isel(length=-1)
    smallest = float(reference.modified_step_size.min())
    level = float(reference.modified_gap.sel(modified_step_size=smallest))
    x = np.sort(reference.modified_step_size.values)
    axes.plot(x, level * (x / smallest) ** 2, color="0.6", lw=0.9, ls=":", label="slope 2")
    axes.plot([], [], "o", color="0.4", label="to the flow")
    axes.plot([], [], "o", color="0.4", mfc="none", label="to the modified flow")
    axes.plot([], [], color="0.4", lw=1.0, label="predicted")
    axes.set(xscale="log", yscale="log", xlabel=r"step size $\eta$", ylabel=r"$\sup_t\,\|\theta_{\rm GD}-\theta\|$")
    axes.set_title("gradient descent")
    axes.set_ylim(top=20 * axes.get_ylim()[1])  # room for the legend
    axes.legend(fontsize=6.5, ncols=2, loc="upper left", columnspacing=0.8)


def _sharpness(data: xr.Dataset, axes: Axes) -> None:
    shown = data.isel(settling=slice(1, None))
    for i, length in enumerate(data.length.values):
        axes.plot(
            shown.settling, shown.sharpness.sel(length=length), color=COLOURS[i], ls=DASHES[i % 4], label=length_label(length)
        )
    axes.set(xscale="log", xlabel="time $t$", ylabel=r"largest Hessian eigenvalue", title="sharpness along the flow")
    axes.legend(fontsize=7)


def _edge(data: xr.Dataset, axes: Axes) -> None:
    """Mean sharpness at the end of descent from the start, in units of the flow's, against the step in units of the stable one."""
    for i, length in enumerate(data.length.values):
        one = data.sel(length=length)
        axes.plot(
            one.large_step / one.stable_step,
            one.large_sharpness * one.stable_step / 2,
            MARKERS[i],
            color=COLOURS[i],
            label=length_label(length),
        )
    x = np.linspace(float(data.multiple.min()), float(data.multiple.max()), 101)
    axes.plot(x, np.minimum(1, 1 / x), color="0.3", lw=1.0, label=r"$\min(1,\,2/\eta\lambda_{\max})$")
    axes.axvline(1.0, color="0.8", lw=0.8, zorder=0)
    axes.set(xlabel=r"$\eta$ over $2/\lambda_{\max}$", ylabel=r"sharpness at the end over $\lambda_{\max}$", title="large steps")
    axes.legend(fontsize=7)


def descent_figure(data: xr.Dataset) -> Figure:
    """Gap over step sizes with its prediction, sharpness along the flow, and where large steps end."""
    with house_style():
        figure = Figure(figsize=(9.0, 2.9))
        first, second, third = figure.subplots(1, 3)
        _gaps(data, first)
        _sharpness(data, second)
        _edge(data, third)
    return figure


def _batches(data: xr.Dataset, axes: Axes) -> None:
    noise = (data.batch_step_size / data.batch_size).values
    order = np.argsort(noise)
    common = np.unique(data.batch_step_size.values, return_counts=True)
    usual = common[0][common[1].argmax()]
    axes.plot(noise[order], data.predicted_sgd_gap.values[order], color="0.3", lw=1.0, label="predicted")
    for i, (chosen, label) in enumerate(
        (
            (data.batch_step_size.values == usual, rf"$\eta={usual:g}$, $B$ varies"),
            (data.batch_step_size.values != usual, r"$\eta$ varies"),
        )
    ):
        if chosen.any():
            gap, error = data.sgd_gap.values[chosen], data.sgd_gap_error.values[chosen]
            axes.errorbar(noise[chosen], gap, 2 * error, fmt=MARKERS[i], color=COLOURS[i], lw=0.8, label=label)
    axes.set(xscale="log", yscale="log", xlabel=r"$\eta/B$", ylabel=r"root mean square $\|\theta_{\rm SGD}-\theta\|$", title="SGD")
    axes.legend(fontsize=7)


def _wander(data: xr.Dataset, axes: Axes) -> None:
    for i, case in enumerate(data.wander_case.values):
        one, colour = data.sel(wander_case=case), COLOURS[i]
        kind, length = str(case).split()
        axes.plot(one.wander_time, one.predicted_wander, color=colour, ls=DASHES[i % 4], lw=1.0)
        every = slice(None, None, max(1, one.sizes["wander_time"] // 10))
        marks = one.isel(wander_time=every)
        axes.errorbar(
            marks.wander_time,
            marks.wander,
            2 * marks.wander_error,
            fmt=MARKERS[i],
            color=colour,
            lw=0.8,
            label=f"{kind}, $L={length}$",
        )
    axes.set(xlabel="time $t$", ylabel=r"variance of $\|V\|^2-\|U\|^2$", title="slow direction")
    axes.legend(fontsize=7)


def _authors(data: xr.Dataset, axes: Axes) -> None:
    shown = data.isel(paper_time=slice(1, None), paper_step=slice(1, None))
    axes.plot(shown.paper_time, shown.paper_law, color=COLOURS[0], label="parameters, rms")
    spread, error = shown.paper_spread, shown.paper_spread_error
    axes.errorbar(
        shown.paper_step, np.sqrt(spread), error / np.sqrt(spread), fmt="o", color=COLOURS[0], ms=3.5, lw=0.8, label="runs ± 2 s.e."
    )
    deviation, excess = (abs(shown[name]) / shown.paper_risk for name in ("paper_deviation", "paper_excess"))
    axes.plot(shown.paper_time, deviation, color=COLOURS[1], ls=DASHES[1], label="risk between runs, relative")
    axes.plot(shown.paper_time, excess, color=COLOURS[2], ls=DASHES[2], label="mean risk, relative")
    axes.set(xscale="log", yscale="log", xlabel="time $t$", ylabel="predicted gap to the flow", title="the authors' SGD")
    axes.legend(fontsize=6.5)


def sgd_figure(data: xr.Dataset) -> Figure:
    """Root mean squared gap over η/B, variance along the slow direction, and the law at the authors' settings."""
    with house_style():
        figure = Figure(figsize=(9.0, 2.9))
        first, second, third = figure.subplots(1, 3)
        _batches(data, first)
        _wander(data, second)
        _authors(data, third)
    return figure


def adam_figure(data: xr.Dataset) -> Figure:
    """Distance of Adam to its two flows over step sizes, and the read-out b along training."""
    with house_style():
        figure = Figure(figsize=(7.6, 3.1))
        left, right = figure.subplots(1, 2)
        for i, length in enumerate(data.adam_length.values):
            one, colour = data.sel(adam_length=length), COLOURS[i]
            left.plot(one.adam_step_size, one.sign_gap, MARKERS[i] + "-", color=colour, label=f"sign flow, {length_label(length)}")
            left.plot(
                one.adam_step_size,
                one.memory_gap,
                MARKERS[i] + "--",
                color=colour,
                mfc="none",
                label=f"flow with memory, {length_label(length)}",
            )
        steps = np.sort(data.sign_step_size.values)
        left.plot(data.sign_step_size, data.early_sign_gap, "D", color=COLOURS[5], ms=3.5, label="sign flow, before a switch")
        left.plot(steps, data.predicted_sign_gap.sortby("sign_step_size"), color=COLOURS[5], lw=1.0, label="predicted")
        left.set(xscale="log", yscale="log", xlabel=r"step size $\eta$", ylabel=r"$\sup_t\,\|\theta_{\rm Adam}-\theta\|$")
        left.set_title("Adam against its flows")
        left.legend(fontsize=6.2)
        one = data.isel(adam_length=-1)
        usual = float(data.adam_step_size.values[np.argmin(np.abs(data.adam_step_size.values - 1e-3))])
        right.plot(one.adam_time, one.memory_b.sel(adam_step_size=usual), color=COLOURS[0], label="flow with memory")
        every = slice(None, None, max(1, one.sizes["adam_time"] // 20))
        marks = one.sel(adam_step_size=usual).isel(adam_time=every)
        right.plot(
            marks.adam_time, marks.adam_b, "o", color=COLOURS[1], ms=3.5, mec="0.2", mew=0.4, label=rf"Adam, $\eta={usual:g}$"
        )
        right.plot(one.adam_time, one.sign_b, color=COLOURS[5], ls="--", label="sign flow")
        right.axhline(float(one.flow_b), color="0.6", lw=0.9, ls=":", label="end of the gradient flow")
        right.set(xlabel=r"time (steps times $\eta$)", ylabel="$b$", title=length_label(float(one.adam_length)))
        right.legend(fontsize=7)
    return figure
