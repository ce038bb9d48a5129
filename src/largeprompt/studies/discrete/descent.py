"""Gradient descent and Adam against their flows: the gap over step sizes, a bowl where it is known,
and the largest stable step.
"""

import math
from collections import deque
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from largeprompt.attention import Attention, SoftmaxAttention
from largeprompt.runs.study import Progress
from largeprompt.studies.covariances import F
from largeprompt.studies.discrete.adam_flow import adam_displacement, adam_flow
from largeprompt.studies.discrete.config import DiscreteConfig
from largeprompt.studies.discrete.modified_flow import modified_flow
from largeprompt.studies.discrete.problem import largest_distance, path_at, problem
from largeprompt.training import (
    Parametrisation,
    adam_descent,
    descent_gap,
    gradient_descent,
    gradient_flow,
)
from largeprompt.training.dynamics.trajectory import hessians_along, slopes_along
from largeprompt.training.risk.objective import Objective, make_objective

NEAR = 1e-6  # how far from the end point a test of stability starts
TEST_STEPS = 200
BRACKET = (0.87, 1.1)  # around the predicted largest stable step, which is not itself tried
BEYOND = 1.01  # times the predicted largest stable step: the control
LARGE = (0.6, 3.0)  # times it: steps from the study's own start
GONE = 6.0  # an entry of θ beyond this counts as diverged; trained ones stay below 3
BOWL_TIMES = 21
LAST = 64  # steps at the end over which sharpness and risk are averaged


def descent(config: DiscreteConfig, kind: str, progress: Progress) -> xr.Dataset:
    """Predicted first-order gap and sharpness of every length; then gradient descent against the
    flow and the modified flow.
    """
    (task, start), lengths, until = problem(config, kind), list(config.lengths), config.until
    gaps = []
    for length in lengths:
        progress(f"predicted gap, L = {length:g}")
        gaps.append(
            descent_gap(
                task,
                start,
                length,
                until,
                times=np.linspace(0, until, config.times),
                parametrisation="block",
            )
        )
    measured = np.full((len(lengths), len(config.step_sizes)), np.nan)
    modified = np.full((len(lengths), len(config.modified_step_sizes)), np.nan)
    for j, step_size in enumerate(config.step_sizes):
        progress(f"gradient descent, step size {step_size:g}")
        steps = math.floor(until / step_size + 1e-9)
        run = gradient_descent(
            task, start, lengths, step_size, steps, record=config.times, parametrisation="block"
        )
        if run.status == "diverged":
            continue
        run.completed()
        for i, gap in enumerate(gaps):
            measured[i, j] = float(
                (run.parameters[i] - path_at(gap.flow, run.times, until)).norm(dim=-1).max()
            )
        if step_size in config.modified_step_sizes:
            times = run.times.numpy()
            bent = modified_flow(
                task,
                start,
                lengths,
                step_size,
                until,
                times=times,
                tolerance=1e-7,
                parametrisation="block",
            ).completed()
            apart = (run.parameters - bent.parameters[:, : len(run.times)]).norm(dim=-1).amax(-1)
            modified[:, config.modified_step_sizes.index(step_size)] = apart.numpy()
    return xr.Dataset(
        {
            "predicted_gap": ("length", [gap.supremum for gap in gaps]),
            "displacement": (
                ("length", "time"),
                torch.stack([gap.displacement.norm(dim=-1) for gap in gaps]).numpy(),
            ),
            "gap": (("length", "step_size"), measured),
            "modified_gap": (("length", "modified_step_size"), modified),
        },
        coords={
            "length": np.asarray(lengths, dtype=float),
            "step_size": list(config.step_sizes),
            "modified_step_size": list(config.modified_step_sizes),
            "time": gaps[0].times.numpy(),
        },
    )


class ReadOutAlone(Parametrisation):
    """θ = v with the scores U of a given layer: the risk is quadratic in it at every length."""

    def __init__(self, attention: Attention) -> None:
        self.U = attention.U.detach()

    def start(self, attention: Attention) -> Tensor:
        return attention.V.reshape(-1).to(F)

    def layer(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        return self.U.expand(len(theta), *self.U.shape), theta.unsqueeze(-2)

    def names(self) -> list[str]:
        return [f"V[0, {i}]" for i in range(len(self.U))]


def bowl(config: DiscreteConfig, progress: Progress) -> xr.Dataset:
    """The control: the read-out alone, where flow, descent and gap are e^{-λt}, (1 - ηλ)^k and
    -½λ²t e^{-λt} by direction.
    """
    task, balanced = problem(config)
    # off the blocks: all directions, and one rule
    start = SoftmaxAttention(balanced.U, balanced.V.max().expand_as(balanced.V))
    alone, times = ReadOutAlone(start), np.linspace(0, config.until, BOWL_TIMES)
    length, step_size = float(config.lengths[0]), min(0.1, config.until / 20)
    gap = descent_gap(
        task, start, length, config.until, times=times, tolerance=1e-8, parametrisation=alone
    )
    values, vectors = torch.linalg.eigh(gap.hessian[0])
    first = gap.flow.parameters[0]
    slope = gap.flow.objective.gradient(first.unsqueeze(0))[1][0]
    away = vectors.mT @ torch.linalg.solve(gap.hessian[0], slope)  # θ(0) less the minimum
    t = gap.times.unsqueeze(-1)
    closed_flow = first - (vectors @ ((1 - torch.exp(-values * t)) * away).mT).mT
    closed_gap = -(vectors @ (values.square() * t * torch.exp(-values * t) / 2 * away).mT).mT
    steps = math.floor(config.until / step_size)
    run = gradient_descent(
        task, start, length, step_size, steps, record=steps + 1, parametrisation=alone
    ).completed()
    closed_descent = (
        first
        - (
            vectors
            @ ((1 - (1 - step_size * values) ** (run.times.unsqueeze(-1) / step_size)) * away).mT
        ).mT
    )
    return xr.Dataset(
        {
            "bowl_flow_error": float((gap.flow.parameters - closed_flow).norm(dim=-1).max()),
            "bowl_gap_error": float(
                (gap.displacement - closed_gap).norm(dim=-1).max() / closed_gap.norm(dim=-1).max()
            ),
            "bowl_descent_error": float((run.parameters - closed_descent).norm(dim=-1).max()),
        }
    )


def descend_together(
    objective: Objective, theta: Tensor, step_sizes: Tensor, steps: int
) -> tuple[Tensor, Tensor]:
    """Gradient descent with one step size for each run of a length: θ after the last steps, (step,
    run, p), and which are gone.
    """
    start, gone, path = theta, torch.zeros(len(theta), dtype=torch.bool), deque[Tensor](maxlen=LAST)
    for _ in range(steps):
        left = ~gone  # those that are gone wait at their start
        if not bool(left.any()):
            break
        if len(objective.lengths) != int(left.sum()):
            objective = objective.with_lengths(objective.lengths[:1] * int(left.sum()))
        theta = theta.clone()
        theta[left] -= step_sizes[left].unsqueeze(-1) * objective.gradient(theta[left])[1]
        gone = gone | ~(theta.abs().amax(-1) < GONE)
        theta = torch.where(gone.unsqueeze(-1), start, theta)
        path.append(theta)
    return torch.stack(list(path)), gone


def stability(config: DiscreteConfig, length: float, progress: Progress) -> xr.Dataset:
    """Predicted from Hessians along the flow and where it ends; then descent near the end point,
    and from the start.
    """
    task, start = problem(config)
    times = np.append(0.0, np.geomspace(config.settled / 1e4, config.settled, config.times - 1))
    flow = gradient_flow(
        task, start, length, config.settled, times=times, tolerance=1e-8, parametrisation="block"
    ).completed()
    one = flow.objective
    sharpness = torch.linalg.eigvalsh(hessians_along(one, flow.parameters.unsqueeze(1)))[:, 0, -1]
    end = flow.parameters[-1]
    values, vectors = torch.linalg.eigh(one.hessian(end.unsqueeze(0))[0])
    predicted = 2 / float(values[-1])
    many = one.with_lengths([length] * config.sections)
    low, high = (share * predicted for share in BRACKET)
    draw = torch.randn(len(end), generator=torch.Generator().manual_seed(config.seed), dtype=F)
    near = (end + NEAR * draw / draw.norm()).expand(config.sections, -1)
    for count in range(config.rounds):
        progress(f"largest stable step: round {count + 1} of {config.rounds}")
        tried = torch.linspace(low, high, config.sections, dtype=F)
        path, gone = descend_together(many, near, tried, TEST_STEPS)
        grown = gone | (
            ((path[-1] - end) @ vectors[:, -1]).abs() > ((near - end) @ vectors[:, -1]).abs()
        )
        if bool(grown.all()) or not bool(grown.any()):
            low, high = math.nan, math.nan
            break
        edge = int(grown.long().argmax())
        low, high = float(tried[edge - 1]), float(tried[edge])
    path, gone = descend_together(
        one, near[:1], torch.tensor([BEYOND * predicted], dtype=F), TEST_STEPS
    )
    growth = ((path[-1] - end) @ vectors[:, -1] / ((near[:1] - end) @ vectors[:, -1])).abs()
    large = torch.linspace(*LARGE, config.large_steps, dtype=F) * predicted
    progress("large steps")
    several, first, _ = make_objective(
        task, start, [length] * config.large_steps, parametrisation="block"
    )
    steps = math.ceil(config.large_until / float(large[0]))
    path, lost = descend_together(several, first, large, steps)
    ended = torch.stack(
        [torch.linalg.eigvalsh(several.hessian(theta))[:, -1] for theta in path]
    ).mean(0)
    risk = torch.stack([several.risks(theta) for theta in path]).mean(0)
    return xr.Dataset(
        {
            "sharpness": ("settling", sharpness.numpy()),
            "stable_step": predicted,
            "path_stable_step": 2 / float(sharpness.max()),
            "measured_stable_step": (low + high) / 2,
            "stable_step_error": (high - low) / 2,
            "growth_beyond": math.inf if bool(gone[0]) else float(growth),
            "large_step": ("multiple", large.numpy()),
            "large_sharpness": ("multiple", torch.where(lost, math.nan, ended).numpy()),
            "large_risk": ("multiple", torch.where(lost, math.nan, risk).numpy()),
            "settled_risk": float(flow.risk[-1]),
        },
        coords={"settling": times, "multiple": np.linspace(*LARGE, config.large_steps)},
    )


EPSILON = 1e-8  # Adam's own, for the flow with memory
SETTLED = 1e-2  # relative distance of b to that of the optimum at which Adam has arrived


def adam_paths(config: DiscreteConfig, length: float, progress: Progress) -> xr.Dataset:
    """Sign flow, flow with memory at every step size, gradient flow; then Adam against the first
    two.
    """
    (task, start), until = problem(config), config.adam_until
    times = np.linspace(0, until, config.times)
    progress("sign flow")
    sign = adam_flow(
        task, start, length, until, times=times, tolerance=1e-6, parametrisation="block"
    ).completed()
    settled = gradient_flow(
        task,
        start,
        length,
        config.settled,
        times=[config.settled],
        tolerance=1e-8,
        parametrisation="block",
    ).completed()
    solver: dict[str, Any] = {
        "epsilon": EPSILON,
        "tolerance": 1e-8,
        "times": times,
        "parametrisation": "block",
    }
    rows: list[dict[str, Any]] = []
    for step_size in config.adam_step_sizes:
        progress(f"step size {step_size:g}")
        memory = adam_flow(task, start, length, until, step_size=step_size, **solver).completed()
        run = adam_descent(
            task,
            start,
            length,
            step_size,
            round(until / step_size),
            record=config.times,
            parametrisation="block",
        ).completed()
        rows.append(
            {
                "sign_gap": largest_distance(run, sign, until),
                "memory_gap": largest_distance(run, memory, until),
            }
        )
        for name, each in (("adam", run), ("memory", memory)):
            path = path_at(each, torch.from_numpy(times), float(each.times[-1]))
            rows[-1] |= {
                f"{name}_b": path[:, -1].tolist(),
                f"{name}_gauge": float(each.conserved[-1]),
            }
    grid = ("adam_step_size", "adam_time")
    return xr.Dataset(
        {
            name: (grid if name.endswith("_b") else "adam_step_size", [row[name] for row in rows])
            for name in rows[0]
        }
        | {
            "sign_b": ("adam_time", sign.parameters[:, -1].numpy()),
            "sign_gauge": float(sign.conserved[-1]),
            "flow_b": float(settled.parameters[-1, -1]),
            "flow_gauge": float(settled.conserved[-1]),
        },
        coords={"adam_step_size": list(config.adam_step_sizes), "adam_time": times},
    )


def sign_gaps(config: DiscreteConfig, progress: Progress) -> xr.Dataset:
    """Before a gradient changes its sign the sign flow is a straight line: Adam's distance to it,
    predicted and measured.
    """
    (task, start), length = problem(config), math.inf
    times = np.linspace(0, config.sign_until, config.times)
    sign = adam_flow(
        task,
        start,
        length,
        config.sign_until,
        times=times,
        tolerance=1e-8,
        epsilon=EPSILON,
        parametrisation="block",
    ).completed()
    gradients = slopes_along(sign.objective, sign.parameters.unsqueeze(1))[1].squeeze(1)
    predicted, measured = [], []
    for step_size in config.sign_step_sizes:
        progress(f"step size {step_size:g}")
        predicted.append(float(adam_displacement(sign, gradients, step_size).norm(dim=-1).max()))
        steps = math.floor(config.sign_until / step_size + 1e-9)
        run = adam_descent(
            task, start, length, step_size, steps, record=config.times, parametrisation="block"
        ).completed()
        measured.append(largest_distance(run, sign, config.sign_until))
    return xr.Dataset(
        {
            "predicted_sign_gap": ("sign_step_size", predicted),
            "early_sign_gap": ("sign_step_size", measured),
        },
        coords={"sign_step_size": list(config.sign_step_sizes)},
    )


def adam_arrival(config: DiscreteConfig, progress: Progress) -> xr.Dataset:
    """Steps until b stays within a hundredth of the optimum of its length: Adam, predicted and run;
    and the time of the flow.
    """
    (task, start), step_size, steps = (
        problem(config),
        config.arrival_step_size,
        config.arrival_steps,
    )
    until, lengths = step_size * steps, list(config.arrival_lengths)
    solver: dict[str, Any] = {
        "epsilon": EPSILON,
        "tolerance": 1e-6,
        "times": [until],
        "parametrisation": "block",
    }
    taken = torch.arange(steps + 1)
    predicted, flow_times, optima = [], [], []
    for length in lengths:
        progress(f"flows, L = {length:g}")
        end, times = (
            30 * length,
            torch.from_numpy(np.append(0.0, np.geomspace(1.0, 30 * length, 4 * config.times))),
        )
        flow = gradient_flow(
            task, start, length, end, times=[end], tolerance=1e-7, parametrisation="block"
        ).completed()
        optima.append(float(flow.parameters[-1, -1]))
        flow_times.append(_arrival(times, path_at(flow, times, end), optima[-1]))
        memory = adam_flow(task, start, length, until, step_size=step_size, **solver).completed()
        predicted.append(_arrival(taken, path_at(memory, step_size * taken, until), optima[-1]))
    progress("Adam to its end")
    run = adam_descent(
        task, start, lengths, step_size, steps, record=steps + 1, parametrisation="block"
    ).completed()
    measured = [
        _arrival(run.times / step_size, path, b)
        for path, b in zip(run.parameters, optima, strict=True)
    ]
    found = {"arrival_steps": measured, "predicted_arrival": predicted, "flow_arrival": flow_times}
    data = xr.Dataset({name: ("arrival_length", values) for name, values in found.items()})
    return data.assign_coords(arrival_length=np.asarray(lengths, dtype=float))


def _arrival(times: Tensor, path: Tensor, optimum: float) -> float:
    """First time from which on b, the last parameter, stays within the tolerance of the optimum;
    NaN if it never does.
    """
    outside = np.flatnonzero(np.abs(path[:, -1].numpy() / optimum - 1) > SETTLED)
    first = int(outside[-1]) + 1 if len(outside) else 0
    return float(times[first]) if first < len(times) else math.nan
