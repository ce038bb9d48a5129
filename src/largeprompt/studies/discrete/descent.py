"""Gradient descent against the flow: the gap over step sizes, and the largest stable step."""

import math
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from largeprompt.runs.study import Progress
from largeprompt.studies.covariances import F
from largeprompt.studies.discrete.config import DiscreteConfig, path_at, problem
from largeprompt.training import descent_gap, gradient_descent, gradient_flow
from largeprompt.training.dynamics.objective import Objective

STEPS = 200  # of a test of stability
BRACKET = (0.87, 1.1)  # around the predicted largest stable step, which is not itself tried


def descent(config: DiscreteConfig, length: float, progress: Progress) -> xr.Dataset:
    """Predicted first-order gap, then gradient descent against the flow at every step size."""
    (task, start), until = problem(config), config.until
    progress(f"predicted gap, L = {length:g}")
    times = np.linspace(0, until, config.times)
    gap = descent_gap(task, start, length, until, times=times, parametrization="block")
    measured = []
    for step_size in config.step_sizes:
        progress(f"gradient descent, step size {step_size:g}")
        steps = math.floor(until / step_size + 1e-9)
        run = gradient_descent(
            task, start, length, step_size, steps, record=config.times, parametrization="block"
        )
        if run.status == "diverged":
            measured.append(math.nan)
            continue
        apart = run.completed().parameters - path_at(gap.flow, run.times, until)
        measured.append(float(apart.norm(dim=-1).max()))
    return xr.Dataset(
        {"predicted_gap": gap.supremum, "gap": ("step_size", measured)},
        {"step_size": list(config.step_sizes)},
    )


def descend_near(
    objective: Objective, start: Tensor, step_sizes: Tensor, direction: Tensor
) -> Tensor:
    """Factor by which the deviation along a direction grows, for each step size at once."""
    end, away = start[0], start[1] - start[0]
    theta = start[1].expand(len(step_sizes), -1)
    for _ in range(STEPS):
        theta = theta - step_sizes.unsqueeze(-1) * objective.gradient(theta)[1]
    return ((theta - end) @ direction / (away @ direction)).abs()


def stability(config: DiscreteConfig, length: float, progress: Progress) -> xr.Dataset:
    """Largest stable step predicted from the Hessian where the flow ends, and by bisection."""
    task, start = problem(config)
    progress("flow to its end")
    options: dict[str, Any] = {"tolerance": 1e-8, "parametrization": "block"}
    options["times"] = [config.settled]
    flow = gradient_flow(task, start, length, config.settled, **options).completed()
    end = flow.parameters[-1]
    values, vectors = torch.linalg.eigh(flow.objective.hessian(end.unsqueeze(0))[0])
    predicted = 2 / float(values[-1])
    draw = torch.randn(len(end), generator=torch.Generator().manual_seed(config.seed), dtype=F)
    near = torch.stack([end, end + 1e-6 * draw / draw.norm()])
    many = flow.objective.with_lengths([length] * config.sections)
    low, high = (share * predicted for share in BRACKET)
    for count in range(config.rounds):
        progress(f"largest stable step: round {count + 1} of {config.rounds}")
        tried = torch.linspace(low, high, config.sections, dtype=F)
        grown = descend_near(many, near, tried, vectors[:, -1]) > 1
        if bool(grown.all()) or not bool(grown.any()):
            low = high = math.nan
            break
        edge = int(grown.long().argmax())
        low, high = float(tried[edge - 1]), float(tried[edge])
    beyond = torch.tensor([1.01 * predicted], dtype=F)
    return xr.Dataset(
        {
            "stable_step": predicted,
            "measured_stable_step": (low + high) / 2,
            "stable_step_error": (high - low) / 2,
            "growth_beyond": float(descend_near(flow.objective, near, beyond, vectors[:, -1])[0]),
        }
    )
