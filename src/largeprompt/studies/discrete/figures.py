"""Discrete training against the flow: gradient descent, SGD, the authors' SGD, and Adam."""

import numpy as np
import xarray as xr

from largeprompt.runs.style import (
    COLORS,
    DASHES,
    MARKERS,
    Axes,
    curves,
    describe,
    entry,
    length_label,
    marks,
    study_figure,
)
from largeprompt.studies.discrete.rules import usual


def _descent(data: xr.Dataset, axes: Axes) -> None:
    """Largest distance of descent to the flow against the step size."""
    steps = np.sort(data.step_size.values)
    for i, length, one in curves(data, "length"):
        axes.plot(steps, float(one.predicted_gap) * steps, color=COLORS[i], ls=DASHES[i], lw=1.0)
        axes.plot(one.step_size, one.gap, MARKERS[i], color=COLORS[i], label=length_label(length))
    entry(axes, "predicted")
    distance = r"$\sup_t\,\|\theta_{\rm GD}-\theta\|$"
    describe(axes, r"step size $\eta$", distance, "gradient descent", log="xy", legend=7, below=4)


def _sgd(data: xr.Dataset, axes: Axes) -> None:
    """Root mean squared distance of SGD to the flow against η/B."""
    noise = data.batch_step_size / data.batch_size
    order = np.argsort(noise.values)
    known = data.predicted_sgd_gap[order]
    axes.plot(noise[order], known, color="0.3", lw=1.0, label="predicted")
    marks(axes, 0, noise, data.sgd_gap, 2 * data.sgd_gap_error, "runs ± 2 s.e.")
    distance = r"root mean square $\|\theta_{\rm SGD}-\theta\|$"
    describe(axes, r"$\eta/B$", distance, "SGD", log="xy", legend=7, below=2)


def _authors(data: xr.Dataset, axes: Axes) -> None:
    """The law at the authors' settings, with runs over its first part."""
    shown = data.isel(paper_time=slice(1, None), paper_step=slice(1, None))
    root = np.sqrt(shown.paper_spread)
    axes.plot(shown.paper_time, shown.paper_law, color=COLORS[0], label="predicted")
    error = shown.paper_spread_error / root
    marks(axes, 1, shown.paper_step, root, error, "runs ± 2 s.e.", ms=3.5)
    distance = r"root mean square $\|\theta_{\rm SGD}-\theta\|$"
    describe(axes, "time $t$", distance, "the authors' SGD", log="xy", legend=7, below=2)


def _adam(data: xr.Dataset, axes: Axes) -> None:
    """Read-out b along Adam and its flow, and where gradient flow ends."""
    common = usual(data)
    one = data.sel(adam_step_size=common)
    few = one.isel(adam_time=slice(None, None, max(1, one.sizes["adam_time"] // 20)))
    axes.plot(one.adam_time, one.memory_b, color=COLORS[0], label="its flow with memory")
    label = rf"Adam, $\eta={common:g}$"
    axes.plot(few.adam_time, few.adam_b, "o", color=COLORS[1], ms=3.5, label=label)
    axes.axhline(float(one.flow_b), color="0.6", lw=0.9, ls=":", label="end of gradient flow")
    time = r"time (steps times $\eta$)"
    describe(axes, time, "read-out $b$", r"Adam, $L=\infty$", legend=7, below=2)


@study_figure(
    "discrete",
    "Distance to the gradient flow, predicted (lines) and measured (marks): gradient descent, SGD, "
    "and SGD at the authors' settings. Last: the read-out b along Adam and the flow it follows.",
    size=(7.6, 6.4),
    panels=(2, 2),
    cards={"N2": 2},
)
def discrete(data: xr.Dataset, *panels: Axes) -> None:
    """Gradient descent, SGD, the authors' SGD, and Adam, a panel each."""
    for draw, axes in zip((_descent, _sgd, _authors, _adam), panels, strict=True):
        draw(data, axes)


FIGURES = (discrete,)
