"""SGD against gradient flow: covariance, mean and risk of many runs, the slow direction, and the authors' own settings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from largeprompt.runs.study import Progress
from largeprompt.studies.covariances import KINDS
from largeprompt.studies.discrete.config import DiscreteConfig, first_layer, regression
from largeprompt.studies.paper.study import PaperConfig
from largeprompt.studies.paper.study import task as authors_task
from largeprompt.training import Factorised, gradient_flow, stochastic_gap
from largeprompt.training.gaps.ensemble import Ensemble, stochastic_ensemble
from largeprompt.training.risk.objective import make_objective

RESOLUTION = 1.0  # of the laws, whose noise is drawn: finer than its error
FINER = 4  # the flow that runs are compared with has so many times the points of the law's
TOGETHER = 64  # runs whose risks are computed at once
SETTLED = 0.25  # share of the time after which spreads are averaged


def _mean_error(samples: Tensor) -> tuple[float, float]:
    """Mean and its standard error over runs."""
    return float(samples.mean()), float(samples.std() / math.sqrt(len(samples)))


def _at(wanted: Tensor, times: Tensor, values: Tensor) -> Tensor:
    """Values known at times, linear in between, at the wanted ones."""
    return torch.from_numpy(np.interp(wanted.numpy(), times.numpy(), values.numpy()))


def batches(config: DiscreteConfig, progress: Progress) -> xr.Dataset:
    """Predicted spread, shift and excess risk; then ensembles of SGD over step sizes and batch sizes, full (U, V)."""
    task, start, length = regression(config), first_layer(config), config.sgd_length
    options: dict[str, Any] = {"points": config.sgd_points, "seed": config.seed}
    progress(f"predicted spread, L = {length}")
    times = np.linspace(0, config.sgd_until, config.sgd_times)
    law = stochastic_gap(
        task,
        start,
        length,
        config.sgd_until,
        _generator(config, 1),
        times=times,
        prompts=config.noise_prompts,
        resolution=RESOLUTION,
        **options,
    )
    progress(f"flow on {FINER} times as many points, L = {length}")
    finer = gradient_flow(task, start, length, config.sgd_until, points=FINER * config.sgd_points, seed=config.seed + 1)
    off = finer.theta(config.sgd_until) - law.descent.flow.theta(config.sgd_until)  # what the points leave open
    rows: dict[str, list[float]] = {name: [] for name in COLUMNS}
    for number, (step_size, batch, runs) in enumerate(config.batches):
        progress(f"SGD, L = {length}: step size {step_size:g}, batch {batch}")
        steps = round(config.sgd_until / step_size)
        drawn = stochastic_ensemble(
            task, start, length, step_size, steps, batch, runs, _generator(config, 10 + number), record=config.sgd_times
        )
        share, late = step_size / batch, drawn.times >= SETTLED * config.sgd_until
        flow = torch.stack([finer.theta(min(float(time), config.sgd_until)) for time in drawn.times])
        predicted, own = (_at(drawn.times, law.times, each)[late].mean() for each in (law.spread, law.spread_error))
        gap = _at(drawn.times, law.times, law.root_mean_square(step_size, batch).square())[late].mean()
        deviations = (drawn.parameters - drawn.mean).square().sum(-1)[:, late].mean(-1) * runs / (runs - 1)
        spread, spread_error = _mean_error(deviations)
        gaps = (drawn.parameters - flow).square().sum(-1)[:, late].mean(-1)
        square, square_error = _mean_error(gaps)
        risk, risk_error = _mean_error(_excess(config, drawn.parameters[:, -1], flow[-1]))
        shift = law.mean(step_size, batch)[-1]
        along = (drawn.parameters[:, -1] - flow[-1]) @ (shift / shift.norm())
        moved, moved_error = _mean_error(along)
        found = {
            "sgd_spread": spread,
            "sgd_spread_error": spread_error,
            "predicted_spread": share * float(predicted),
            "predicted_spread_error": share * float(own),
            "sgd_gap": math.sqrt(square),
            "sgd_gap_error": square_error / (2 * math.sqrt(square)),
            "predicted_sgd_gap": math.sqrt(float(gap)),
            "sgd_excess": risk,
            "sgd_excess_error": risk_error,
            "predicted_excess": float(law.excess_risk(step_size, batch)[-1]),
            "sgd_shift": moved,
            "sgd_shift_error": math.hypot(moved_error, float(off @ (shift / shift.norm()))),
            "predicted_shift": float(shift.norm()),
        }
        for name in COLUMNS:
            rows[name].append(found[name])
    coordinates = [list(column) for column in zip(*config.batches, strict=True)]
    return xr.Dataset(
        {name: ("batch", values) for name, values in rows.items()}
        | {"stationary_excess": law.stationary_excess(1.0, 1.0), "final_excess": float(law.excess_risk(1.0, 1.0)[-1])},
        coords={
            "batch_step_size": ("batch", coordinates[0]),
            "batch_size": ("batch", coordinates[1]),
            "batch_runs": ("batch", coordinates[2]),
        },
    )


def _excess(config: DiscreteConfig, parameters: Tensor, reference: Tensor) -> Tensor:
    """Risk at each of ``parameters`` (run, p) above that at ``reference`` (p,), by one rule for both, a few runs at a time."""
    task, start, points = regression(config), first_layer(config), config.sgd_points // 4

    def risks(theta: Tensor) -> Tensor:
        objective, *_ = make_objective(task, start, [config.sgd_length] * len(theta), "full", points, config.seed)
        return objective.risks(theta)

    return torch.cat([risks(part) for part in parameters.split(TOGETHER)]) - risks(reference.unsqueeze(0))


COLUMNS = (
    "sgd_spread",
    "sgd_spread_error",
    "predicted_spread",
    "predicted_spread_error",
    "sgd_gap",
    "sgd_gap_error",
    "predicted_sgd_gap",
    "sgd_excess",
    "sgd_excess_error",
    "predicted_excess",
    "sgd_shift",
    "sgd_shift_error",
    "predicted_shift",
)


def wander(config: DiscreteConfig, case: str, progress: Progress) -> xr.Dataset:
    """The quantity ‖V‖² - ‖U‖², whose direction is nearly flat: its variance between runs of SGD, predicted and measured."""
    kind, words = case.split()
    length, task, start = int(words), regression(config), first_layer(config, kind)
    step_size, batch, runs = config.wander_batch
    progress(f"predicted variance, {kind} attention, L = {length}")
    times = np.linspace(0, config.wander_until, config.sgd_times)
    number = config.wander_cases.index(case)
    law = stochastic_gap(
        task,
        start,
        length,
        config.wander_until,
        _generator(config, 100 + number),
        times=times,
        prompts=config.noise_prompts // 4,
        shift=False,
        resolution=RESOLUTION,
        points=config.sgd_points // 4,
        seed=config.seed,
    )
    path, size = law.descent.flow.parameters, start.U.numel()
    slope = 2 * torch.cat([-path[:, :size], path[:, size:]], -1)  # of ‖V‖² - ‖U‖²
    predicted = step_size / batch * torch.einsum("ti,tij,tj->t", slope, law.covariance, slope)
    rate = step_size / batch * torch.einsum("ti,tij,tj->t", slope, law.noise, slope)
    walked = torch.cat([rate.new_zeros(1), torch.cumulative_trapezoid(rate, law.times)])  # if nothing drew it back
    progress(f"SGD, {kind} attention, L = {length}")
    drawn = stochastic_ensemble(
        task,
        start,
        length,
        step_size,
        round(config.wander_until / step_size),
        batch,
        runs,
        _generator(config, 200 + number),
        record=config.sgd_times,
    )
    gauge = law.descent.flow.parametrisation.conserved
    values = torch.stack([gauge(theta) for theta in drawn.parameters])  # (run, time)
    spread = values.var(0)
    return xr.Dataset(
        {
            "wander": ("wander_time", spread.numpy(), {"long_name": "variance of |V|^2 - |U|^2 between runs"}),
            "wander_error": ("wander_time", ((values - values.mean(0)).square().std(0) / math.sqrt(runs)).numpy()),
            "predicted_wander": ("wander_time", _at(drawn.times, law.times, predicted.clamp_min(0.0)).numpy()),
            "free_wander": ("wander_time", _at(drawn.times, law.times, walked.clamp_min(0.0)).numpy()),
        },
        coords={"wander_time": drawn.times.numpy()},
    )


def authors(config: DiscreteConfig, progress: Progress) -> xr.Dataset:
    """The authors' SGD: its law to the end of their training, and runs of it over the first part."""
    paper = PaperConfig()
    task = authors_task(paper, "intended")
    start = Factorised.default(paper.dim + 1, torch.Generator().manual_seed(paper.seed))
    U, V = (part[0] for part in start.layer(start.start().unsqueeze(0)))
    layer = KINDS["softmax"](U, V)
    step_size, batch, length = paper.learning_rate, paper.batch_size, config.paper_length
    measured = step_size * config.paper_steps
    times = np.unique(
        np.concatenate(
            [[0.0], np.geomspace(0.1, config.paper_until, config.paper_times), np.linspace(0, measured, config.paper_records)]
        ).round(12)
    )
    progress("predicted spread of the authors' SGD")
    law = stochastic_gap(
        task,
        layer,
        length,
        config.paper_until,
        _generator(config, 300),
        parametrisation=start,
        times=times,
        prompts=config.paper_prompts,
        shift=False,
        resolution=1e9,
        tolerance=1e-5,
        points=config.paper_points,
        seed=config.seed,
    )
    progress("the authors' SGD")
    drawn: Ensemble = stochastic_ensemble(
        task,
        layer,
        length,
        step_size,
        config.paper_steps,
        batch,
        config.paper_runs,
        _generator(config, 301),
        parametrisation=start,
        record=config.paper_records,
    )
    squares = (drawn.parameters - drawn.mean).square().sum(-1) * config.paper_runs / (config.paper_runs - 1)
    at = torch.searchsorted(law.times, drawn.times - 1e-9)
    predicted = step_size / batch * law.spread
    size = law.descent.flow.parameters.norm(dim=-1)
    return xr.Dataset(
        {
            "paper_spread": ("paper_step", squares.mean(0).numpy()),
            "paper_spread_error": ("paper_step", (squares.std(0) / math.sqrt(config.paper_runs)).numpy()),
            "paper_predicted": ("paper_step", predicted[at].numpy()),
            "paper_law": ("paper_time", law.root_mean_square(step_size, batch).numpy()),
            "paper_law_error": (
                "paper_time",
                (step_size / batch * law.spread_error / (2 * predicted.sqrt().clamp_min(1e-300))).numpy(),
            ),
            "paper_size": ("paper_time", size.numpy()),
            "paper_descent": ("paper_time", (step_size * law.descent.displacement.norm(dim=-1)).numpy()),
            "paper_excess": ("paper_time", law.excess_risk(step_size, batch).numpy()),
            "paper_deviation": ("paper_time", law.risk_deviation(step_size, batch).numpy()),
            "paper_risk": ("paper_time", law.descent.flow.risk.numpy()),
            "paper_stable_step": law.descent.stable_step_on_path,
        },
        coords={"paper_time": times, "paper_step": drawn.times.numpy()},
    )


def _generator(config: DiscreteConfig, number: int) -> torch.Generator:
    """A stream of its own for every part of the study."""
    return torch.Generator().manual_seed(1_000_003 * config.seed + number)
