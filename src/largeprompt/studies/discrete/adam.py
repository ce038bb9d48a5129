"""Adam on the exact risk against the flows that it follows: with and without its memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import xarray as xr

from largeprompt.runs.study import Progress
from largeprompt.studies.discrete.config import DiscreteConfig, first_layer, regression
from largeprompt.training import adam_descent, adam_flow, gradient_flow
from largeprompt.training.dynamics.adam import adam_displacement
from largeprompt.training.risk.objective import make_objective

EPSILON = 1e-8  # Adam's own, for the flow with memory
SETTLED = 1e-2  # relative distance of b to that of the optimum at which Adam has arrived


def paths(config: DiscreteConfig, length: float, progress: Progress) -> xr.Dataset:
    """Sign flow, flow with memory at every step size, gradient flow; then Adam against the first two."""
    task, start = regression(config), first_layer(config)
    options: dict[str, Any] = {"parametrisation": "block", "points": config.points, "seed": config.seed}
    times = np.linspace(0, config.adam_until, config.times)
    progress(f"sign flow, L = {length:g}")
    sign = adam_flow(task, start, length, config.adam_until, times=times, tolerance=1e-6, **options)
    settled = gradient_flow(task, start, length, config.settled, times=[config.settled], tolerance=1e-8, **options).completed()
    columns: dict[str, list[Any]] = {
        name: [] for name in ("sign_gap", "memory_gap", "adam_b", "memory_b", "adam_gauge", "memory_gauge")
    }
    for step_size in config.adam_step_sizes:
        progress(f"Adam, L = {length:g}, step size {step_size:g}")
        steps = round(config.adam_until / step_size)
        memory = adam_flow(
            task, start, length, config.adam_until, step_size=step_size, epsilon=EPSILON, tolerance=1e-8, times=times, **options
        )
        run = adam_descent(task, start, length, step_size, steps, record=config.times, **options)
        for name, flow in (("sign_gap", sign), ("memory_gap", memory)):
            along = torch.stack([flow.theta(min(float(time), config.adam_until)) for time in run.times])
            columns[name].append(float((run.parameters - along).norm(dim=-1).max()))
        for name, each in (("adam", run), ("memory", memory)):
            columns[f"{name}_b"].append([float(each.theta(min(time, float(each.times[-1])))[-1]) for time in times])
            columns[f"{name}_gauge"].append(float(each.conserved[-1]))
    grid = ("adam_step_size", "adam_time")
    return xr.Dataset(
        {name: (grid if name.endswith("_b") else "adam_step_size", np.asarray(values)) for name, values in columns.items()}
        | {
            "sign_b": ("adam_time", sign.parameters[:, -1].numpy()),
            "sign_gauge": float(sign.conserved[-1]),
            "flow_b": float(settled.parameters[-1, -1]),
            "flow_gauge": float(settled.conserved[-1]),
        },
        coords={"adam_step_size": list(config.adam_step_sizes), "adam_time": times},
    )


def first_order(config: DiscreteConfig, progress: Progress) -> xr.Dataset:
    """Before a gradient changes its sign the sign flow is a straight line: Adam's distance to it, predicted and measured."""
    task, start, length = regression(config), first_layer(config), math.inf
    options: dict[str, Any] = {"parametrisation": "block", "points": config.points, "seed": config.seed}
    times = np.linspace(0, config.sign_until, config.times)
    sign = adam_flow(task, start, length, config.sign_until, times=times, tolerance=1e-8, epsilon=EPSILON, **options)
    objective, *_ = make_objective(task, start, length, **options)
    gradients = torch.cat([objective.gradient(theta.unsqueeze(0))[1] for theta in sign.parameters])
    predicted, measured = [], []
    for step_size in config.sign_step_sizes:
        progress(f"Adam, step size {step_size:g}")
        moved = adam_displacement(sign, gradients, step_size)
        predicted.append(float(moved.norm(dim=-1).max()))
        steps = math.floor(config.sign_until / step_size + 1e-9)
        run = adam_descent(task, start, length, step_size, steps, record=config.times, **options)
        along = torch.stack([sign.theta(min(float(time), config.sign_until)) for time in run.times])
        measured.append(float((run.parameters - along).norm(dim=-1).max()))
    return xr.Dataset(
        {"predicted_sign_gap": ("sign_step_size", predicted), "early_sign_gap": ("sign_step_size", measured)},
        coords={"sign_step_size": list(config.sign_step_sizes)},
    )


def arrival(config: DiscreteConfig, progress: Progress) -> xr.Dataset:
    """Steps until b stays within a hundredth of the optimum of its length: Adam, predicted and run; and the time of the flow."""
    task, start, step_size = regression(config), first_layer(config), config.arrival_step_size
    options: dict[str, Any] = {"parametrisation": "block", "points": config.points, "seed": config.seed}
    until = step_size * config.arrival_steps
    predicted, flow_times, optima = [], [], []
    for length in config.arrival_lengths:
        progress(f"flows, L = {length:g}")
        times = np.append(0.0, np.geomspace(1.0, 30 * length, 4 * config.times))
        flow = gradient_flow(task, start, length, 30 * length, times=times, tolerance=1e-7, **options).completed()
        optima.append(float(flow.parameters[-1, -1]))
        flow_times.append(_arrival(flow.times.numpy(), flow.parameters[:, -1].numpy(), optima[-1]))
        memory = adam_flow(
            task,
            start,
            length,
            until,
            step_size=step_size,
            epsilon=EPSILON,
            tolerance=1e-6,
            times=np.linspace(0, until, config.arrival_steps + 1),
            **options,
        )
        predicted.append(_arrival(memory.times.numpy() / step_size, memory.parameters[:, -1].numpy(), optima[-1]))
    progress("Adam to its end")
    run = adam_descent(
        task, start, list(config.arrival_lengths), step_size, config.arrival_steps, record=config.arrival_steps + 1, **options
    )
    steps = run.times.numpy() / step_size
    measured = [_arrival(steps, path[:, -1].numpy(), b) for path, b in zip(run.parameters, optima, strict=True)]
    return xr.Dataset(
        {
            "arrival_steps": ("arrival_length", measured),
            "predicted_arrival": ("arrival_length", predicted),
            "flow_arrival": ("arrival_length", flow_times),
        },
        coords={"arrival_length": np.asarray(config.arrival_lengths, dtype=float)},
    )


def _arrival(times: Any, b: Any, optimum: float) -> float:
    """First time from which on b stays within the tolerance of the optimum; NaN if it never does."""
    outside = np.flatnonzero(np.abs(b / optimum - 1) > SETTLED)
    if not len(outside):
        return float(times[0])
    return float(times[outside[-1] + 1]) if outside[-1] + 1 < len(times) else math.nan
