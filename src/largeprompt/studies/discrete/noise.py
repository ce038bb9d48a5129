"""SGD against gradient flow: covariance, mean and risk of many runs, the slow direction, and the
authors' own settings.
"""

import math
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from largeprompt.runs.study import Progress
from largeprompt.studies.discrete.config import DiscreteConfig
from largeprompt.studies.discrete.ensemble import stochastic_ensemble
from largeprompt.studies.discrete.problem import path_at, problem
from largeprompt.studies.discrete.stochastic_gap import stochastic_gap
from largeprompt.studies.paper import parts as paper_parts
from largeprompt.studies.paper.config import PaperConfig
from largeprompt.training.risk.objective import make_objective

RESOLUTION = 1.0  # of the laws, whose noise is drawn: finer than its error
TOGETHER = 64  # runs whose risks are computed at once
SETTLED = 0.25  # share of the time after which spreads are averaged


def _mean_error(samples: Tensor) -> tuple[float, float]:
    """Mean and its standard error over runs."""
    return float(samples.mean()), float(samples.std() / math.sqrt(len(samples)))


def _at(wanted: Tensor, times: Tensor, values: Tensor) -> Tensor:
    """Values known at times, interpolated linearly to the wanted ones."""
    return torch.from_numpy(np.interp(wanted.numpy(), times.numpy(), values.numpy()))


def _generator(config: DiscreteConfig, number: int) -> torch.Generator:
    """A stream of its own for every part of the study."""
    return torch.Generator().manual_seed(1_000_003 * config.seed + number)


def batches(config: DiscreteConfig, progress: Progress) -> xr.Dataset:
    """Predicted spread, shift and excess risk; then ensembles of SGD over step sizes and batch
    sizes, full (U, V).
    """
    (task, start), length, until = problem(config), config.sgd_length, config.sgd_until
    progress("predicted spread")
    options: dict[str, Any] = {"prompts": config.noise_prompts, "resolution": RESOLUTION}
    options["times"] = np.linspace(0, until, config.sgd_times)
    law = stochastic_gap(task, start, length, until, _generator(config, 1), **options)
    rows = []
    for number, (step_size, batch, runs) in enumerate(config.batches):
        progress(f"step size {step_size:g}, batch {batch}")
        steps, generator = round(until / step_size), _generator(config, 10 + number)
        drawn = stochastic_ensemble(
            task, start, length, step_size, steps, batch, runs, generator, record=config.sgd_times
        )
        share, late = step_size / batch, drawn.times >= SETTLED * until
        flow = path_at(law.descent.flow, drawn.times, until)
        squared_gap = law.root_mean_square(step_size, batch).square()
        known = (law.spread, law.spread_error, squared_gap)
        predicted, own, gap = (
            float(_at(drawn.times, law.times, each)[late].mean()) for each in known
        )
        spread, spread_error = _mean_error(
            (drawn.parameters - drawn.mean).square().sum(-1)[:, late].mean(-1) * runs / (runs - 1)
        )
        square, square_error = _mean_error(
            (drawn.parameters - flow).square().sum(-1)[:, late].mean(-1)
        )
        risk, risk_error = _mean_error(_excess(config, drawn.parameters[:, -1], flow[-1]))
        shift = law.mean(step_size, batch)[-1]
        direction = shift / shift.norm()
        moved, moved_error = _mean_error((drawn.parameters[:, -1] - flow[-1]) @ direction)
        rows.append(
            {
                "sgd_spread": spread,
                "sgd_spread_error": spread_error,
                "predicted_spread": share * predicted,
                "predicted_spread_error": share * own,
                "sgd_gap": math.sqrt(square),
                "sgd_gap_error": square_error / (2 * math.sqrt(square)),
                "predicted_sgd_gap": math.sqrt(gap),
                "sgd_excess": risk,
                "sgd_excess_error": risk_error,
                "predicted_excess": float(law.excess_risk(step_size, batch)[-1]),
                "sgd_shift": moved,
                "sgd_shift_error": moved_error,
                "predicted_shift": float(shift.norm()),
            }
        )
    settings = zip(
        ("batch_step_size", "batch_size", "batch_runs"),
        zip(*config.batches, strict=True),
        strict=True,
    )
    return xr.Dataset(
        {name: ("batch", [row[name] for row in rows]) for name in rows[0]}
        | {
            "stationary_excess": law.stationary_excess(1.0, 1.0),
            "final_excess": float(law.excess_risk(1.0, 1.0)[-1]),
        },
        coords={name: ("batch", list(column)) for name, column in settings},
    )


def _excess(config: DiscreteConfig, parameters: Tensor, reference: Tensor) -> Tensor:
    """Risk at each of ``parameters`` (run, p) above that at ``reference`` (p,), by one rule for
    both, a few runs at a time.
    """
    (task, start), found = problem(config), []
    for part in parameters.split(TOGETHER):
        objective, *_ = make_objective(task, start, [config.sgd_length] * (len(part) + 1), "full")
        # alone it is in blocks, which have another rule
        risks = objective.risks(torch.cat([part, reference.unsqueeze(0)]))
        found.append(risks[:-1] - risks[-1])
    return torch.cat(found)


def wander(config: DiscreteConfig, case: str, progress: Progress) -> xr.Dataset:
    """The quantity ‖V‖² - ‖U‖², whose direction is nearly flat: its variance between runs of SGD,
    predicted and measured.
    """
    kind, words = case.split()
    (task, start), length, until = problem(config, kind), int(words), config.wander_until
    step_size, batch, runs = config.wander_batch
    progress("predicted variance")
    number = config.wander_cases.index(case)
    options: dict[str, Any] = {
        "prompts": config.noise_prompts // 4,
        "shift": False,
        "resolution": RESOLUTION,
    }
    options["times"] = np.linspace(0, until, config.sgd_times)
    law = stochastic_gap(task, start, length, until, _generator(config, 100 + number), **options)
    path, size = law.descent.flow.parameters, start.U.numel()
    slope = 2 * torch.cat([-path[:, :size], path[:, size:]], -1)  # of ‖V‖² - ‖U‖²
    predicted, rate = (
        step_size / batch * torch.einsum("ti,tij,tj->t", slope, each, slope)
        for each in (law.covariance, law.noise)
    )
    # if nothing drew it back
    walked = torch.cat([rate.new_zeros(1), torch.cumulative_trapezoid(rate, law.times)])
    progress("SGD")
    steps, generator = round(until / step_size), _generator(config, 200 + number)
    drawn = stochastic_ensemble(
        task, start, length, step_size, steps, batch, runs, generator, record=config.sgd_times
    )
    gauge = law.descent.flow.parametrisation.conserved
    values = torch.stack([gauge(theta) for theta in drawn.parameters])  # (run, time)
    found = {
        "wander": values.var(0),
        "wander_error": (values - values.mean(0)).square().std(0) / math.sqrt(runs),
        "predicted_wander": _at(drawn.times, law.times, predicted.clamp_min(0.0)),
        "free_wander": _at(drawn.times, law.times, walked.clamp_min(0.0)),
    }
    data = xr.Dataset({name: ("wander_time", value.numpy()) for name, value in found.items()})
    return data.assign_coords(wander_time=drawn.times.numpy())


def authors(config: DiscreteConfig, progress: Progress) -> xr.Dataset:
    """The authors' SGD: its law to the end of their training, and runs of it over
    the first part.
    """
    paper, length, until, runs = (
        PaperConfig(),
        config.paper_length,
        config.paper_until,
        config.paper_runs,
    )
    task, (start, layer) = paper_parts.task(paper, "intended"), paper_parts.start(paper, "softmax")
    step_size, batch, steps = paper.learning_rate, paper.batch_size, config.paper_steps
    law_times, run_times = (
        np.geomspace(0.1, until, config.paper_times),
        np.linspace(0, step_size * steps, config.paper_records),
    )
    times = np.unique(np.concatenate([[0.0], law_times, run_times]).round(12))
    progress("predicted spread")
    options: dict[str, Any] = {
        "prompts": config.paper_prompts,
        "shift": False,
        "resolution": 1e9,
        "tolerance": 1e-5,
    }
    options |= {"parametrisation": start, "times": times}
    law = stochastic_gap(task, layer, length, until, _generator(config, 300), **options)
    progress("SGD")
    options = {"parametrisation": start, "record": config.paper_records}
    drawn = stochastic_ensemble(
        task, layer, length, step_size, steps, batch, runs, _generator(config, 301), **options
    )
    squares = (drawn.parameters - drawn.mean).square().sum(-1) * runs / (runs - 1)
    predicted = step_size / batch * law.spread
    measured = {
        "paper_spread": squares.mean(0),
        "paper_spread_error": squares.std(0) / math.sqrt(runs),
        "paper_predicted": predicted[torch.searchsorted(law.times, drawn.times - 1e-9)],
    }
    along = {
        "paper_law": law.root_mean_square(step_size, batch),
        "paper_law_error": step_size
        / batch
        * law.spread_error
        / (2 * predicted.sqrt().clamp_min(1e-300)),
        "paper_size": law.descent.flow.parameters.norm(dim=-1),
        "paper_descent": step_size * law.descent.displacement.norm(dim=-1),
        "paper_excess": law.excess_risk(step_size, batch),
        "paper_deviation": law.risk_deviation(step_size, batch),
        "paper_risk": law.descent.flow.risk,
    }
    return xr.Dataset(
        {name: ("paper_step", value.numpy()) for name, value in measured.items()}
        | {name: ("paper_time", value.numpy()) for name, value in along.items()}
        | {"paper_stable_step": law.descent.stable_step_on_path},
        coords={"paper_time": times, "paper_step": drawn.times.numpy()},
    )
