"""Gradient descent against gradient flow: the gap over step sizes, a bowl where it is known, and the largest stable step."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from largeprompt.attention import Attention
from largeprompt.runs.study import Progress
from largeprompt.studies.covariances import F
from largeprompt.studies.discrete.config import DiscreteConfig, first_layer, regression
from largeprompt.training import Parametrisation, descent_gap, gradient_descent, gradient_flow, modified_flow
from largeprompt.training.risk.objective import Objective, make_objective

NEAR = 1e-6  # how far from the end point a test of stability starts
TEST_STEPS = 200
BRACKET = (0.87, 1.1)  # around the predicted largest stable step, which is no point of the search
BEYOND = 1.01  # times the predicted largest stable step: the control
LARGE = (0.6, 3.0)  # times it: steps from the study's own start
GONE = 6.0  # an entry of θ beyond this counts as diverged; trained ones stay below 3
BOWL_TIMES = 21
LAST = 64  # steps at the end over which sharpness and risk are averaged


def descent(config: DiscreteConfig, kind: str, progress: Progress) -> xr.Dataset:
    """Predicted first-order gap and sharpness of every length; then gradient descent against the flow and the modified flow."""
    task, start = regression(config), first_layer(config, kind)
    options: dict[str, Any] = {"parametrisation": "block", "points": config.points, "seed": config.seed}
    gaps = []
    for length in config.lengths:
        progress(f"predicted gap, {kind} attention, L = {length:g}")
        gaps.append(descent_gap(task, start, length, config.until, times=np.linspace(0, config.until, config.times), **options))
    measured = np.full((len(config.lengths), len(config.step_sizes)), np.nan)
    modified = np.full((len(config.lengths), len(config.modified_step_sizes)), np.nan)
    for j, step_size in enumerate(config.step_sizes):
        progress(f"gradient descent, {kind} attention, step size {step_size:g}")
        steps = math.floor(config.until / step_size + 1e-9)
        run = gradient_descent(task, start, list(config.lengths), step_size, steps, record=config.times, **options)
        if run.status != "finished":
            continue
        for i, gap in enumerate(gaps):
            flow = torch.stack([gap.flow.theta(min(float(time), config.until)) for time in run.times])
            measured[i, j] = float((run.parameters[i] - flow).norm(dim=-1).max())
        if step_size in config.modified_step_sizes:
            bent = modified_flow(
                task, start, list(config.lengths), step_size, config.until, times=run.times.numpy(), tolerance=1e-7, **options
            )
            apart = (run.parameters - bent.parameters[:, : len(run.times)]).norm(dim=-1).amax(-1)
            modified[:, config.modified_step_sizes.index(step_size)] = apart.numpy()
    return xr.Dataset(
        {
            "predicted_gap": ("length", [gap.supremum for gap in gaps], {"long_name": "sup of the gap over the step size"}),
            "displacement": (("length", "time"), torch.stack([gap.displacement.norm(dim=-1) for gap in gaps]).numpy()),
            "gap": (("length", "step_size"), measured),
            "modified_gap": (("length", "modified_step_size"), modified),
        },
        coords={
            "length": np.asarray(config.lengths, dtype=float),
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
    """The control: the read-out alone, where flow, descent and gap are e^{-λt}, (1 - ηλ)^k and -½λ²t e^{-λt} by direction."""
    task, start = regression(config), first_layer(config)
    options: dict[str, Any] = {"parametrisation": ReadOutAlone(start), "points": config.points, "seed": config.seed}
    length, step_size = float(config.lengths[0]), min(0.1, config.until / 20)
    gap = descent_gap(task, start, length, config.until, times=np.linspace(0, config.until, BOWL_TIMES), tolerance=1e-8, **options)
    values, vectors = torch.linalg.eigh(gap.hessian[0])
    first = gap.flow.parameters[0]
    objective, *_ = make_objective(task, start, length, **options)
    away = vectors.mT @ torch.linalg.solve(gap.hessian[0], objective.gradient(first.unsqueeze(0))[1][0])  # θ(0) less the minimum
    t = gap.times.unsqueeze(-1)
    closed_flow = first - (vectors @ ((1 - torch.exp(-values * t)) * away).mT).mT
    closed_gap = -(vectors @ (values.square() * t * torch.exp(-values * t) / 2 * away).mT).mT
    steps = math.floor(config.until / step_size)
    run = gradient_descent(task, start, length, step_size, steps, record=steps + 1, **options)
    closed_descent = first - (vectors @ ((1 - (1 - step_size * values) ** (run.times.unsqueeze(-1) / step_size)) * away).mT).mT
    return xr.Dataset(
        {
            "bowl_flow_error": float((gap.flow.parameters - closed_flow).norm(dim=-1).max()),
            "bowl_gap_error": float((gap.displacement - closed_gap).norm(dim=-1).max() / closed_gap.norm(dim=-1).max()),
            "bowl_descent_error": float((run.parameters - closed_descent).norm(dim=-1).max()),
        }
    )


def side_by_side(objective: Objective, theta: Tensor, step_sizes: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradient descent with one step size for each run: θ, whether it is gone, and means of sharpness and risk at the end."""
    gone = torch.zeros(len(theta), dtype=torch.bool)
    start, sharpness, risk = theta, torch.zeros(len(theta), dtype=F), torch.zeros(len(theta), dtype=F)
    last = min(LAST, steps)
    for step in range(steps):
        theta = theta - step_sizes.unsqueeze(-1) * objective.gradient(theta)[1]
        gone = gone | ~(theta.abs().amax(-1) < GONE)
        theta = torch.where(gone.unsqueeze(-1), start, theta)
        if step >= steps - last:
            sharpness = sharpness + torch.linalg.eigvalsh(objective.hessian(theta))[:, -1] / last
            risk = risk + objective.risks(theta) / last
    return theta, gone, sharpness, risk


def stability(config: DiscreteConfig, length: float, progress: Progress) -> xr.Dataset:
    """Predicted from Hessians along the flow and where it ends; then descent near the end point, and from the start."""
    task, start = regression(config), first_layer(config)
    options: dict[str, Any] = {"parametrisation": "block", "points": config.points, "seed": config.seed}
    times = np.append(0.0, np.geomspace(config.settled / 1e4, config.settled, config.times - 1))
    flow = gradient_flow(task, start, length, config.settled, times=times, tolerance=1e-8, **options).completed()
    one, *_ = make_objective(task, start, length, **options)
    sharpness = torch.linalg.eigvalsh(torch.cat([one.hessian(theta.unsqueeze(0)) for theta in flow.parameters]))[:, -1]
    end = flow.parameters[-1]
    values, vectors = torch.linalg.eigh(one.hessian(end.unsqueeze(0))[0])
    predicted = 2 / float(values[-1])
    many, *_ = make_objective(task, start, [length] * config.sections, **options)
    low, high = (share * predicted for share in BRACKET)
    draw = torch.randn(len(end), generator=torch.Generator().manual_seed(config.seed), dtype=F)
    near = (end + NEAR * draw / draw.norm()).expand(config.sections, -1)
    for count in range(config.rounds):
        progress(f"largest stable step, L = {length:g}: round {count + 1} of {config.rounds}")
        tried = torch.linspace(low, high, config.sections, dtype=F)
        final, gone, *_ = side_by_side(many, near, tried, TEST_STEPS)
        grown = gone | (((final - end) @ vectors[:, -1]).abs() > ((near - end) @ vectors[:, -1]).abs())
        if bool(grown.all()) or not bool(grown.any()):
            low, high = math.nan, math.nan
            break
        edge = int(grown.long().argmax())
        low, high = float(tried[edge - 1]), float(tried[edge])
    final, gone, *_ = side_by_side(one, near[:1], torch.tensor([BEYOND * predicted], dtype=F), TEST_STEPS)
    growth = ((final - end) @ vectors[:, -1] / ((near[:1] - end) @ vectors[:, -1])).abs()
    large = torch.linspace(*LARGE, config.large_steps, dtype=F) * predicted
    progress(f"large steps, L = {length:g}")
    several, first, _ = make_objective(task, start, [length] * config.large_steps, **options)
    steps = math.ceil(config.large_until / float(large[0]))
    _, gone, ended, risk = side_by_side(several, first, large, steps)
    silent = torch.where(gone, torch.full_like(ended, math.nan), ended)
    return xr.Dataset(
        {
            "sharpness": ("settling", sharpness.numpy(), {"long_name": "largest Hessian eigenvalue along the flow"}),
            "stable_step": predicted,
            "path_stable_step": 2 / float(sharpness.max()),
            "measured_stable_step": (low + high) / 2,
            "stable_step_error": (high - low) / 2,
            "growth_beyond": math.inf if bool(gone[0]) else float(growth),
            "large_step": ("multiple", large.numpy()),
            "large_sharpness": ("multiple", silent.numpy()),
            "large_risk": ("multiple", torch.where(gone, math.nan, risk).numpy()),
            "settled_risk": float(flow.risk[-1]),
        },
        coords={"settling": times, "multiple": np.linspace(*LARGE, config.large_steps)},
    )
