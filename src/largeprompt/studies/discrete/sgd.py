"""SGD against gradient flow: the law of its spread, many runs, and the authors' own settings."""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from largeprompt.attention import Attention
from largeprompt.runs.study import Progress
from largeprompt.studies import paper
from largeprompt.studies.discrete.config import DiscreteConfig, path_at, problem
from largeprompt.training import LinearRegression, gradient_flow
from largeprompt.training.dynamics.objective import Form, chosen_parametrization
from largeprompt.training.dynamics.trajectory import Trajectory, between
from largeprompt.training.gaps.descent import gap_of
from largeprompt.training.gaps.linearized import linearize
from largeprompt.training.risk.derivatives import rows
from largeprompt.training.tasks.prompts import prompt_factors

NOISE_TIMES, GROUPS = 25, 8  # times at which the noise is drawn, and groups that show its error
CHUNK = 2**20  # entries of tokens held at a time


class Law(NamedTuple):
    """SGD around the flow to first order: Cov θ = (η/B) P, E θ - θ_flow = ηδ + O(η/B)."""

    flow: Trajectory
    displacement: Tensor  # δ, shape (time, p)
    covariance: Tensor  # P, shape (time, p, p)
    spread_error: Tensor  # standard error of tr P that the drawn noise leaves, shape (time,)

    @property
    def spread(self) -> Tensor:
        """tr P, shape (time,)."""
        return self.covariance.diagonal(dim1=-2, dim2=-1).sum(-1)

    def root_mean_square(self, step_size: float, batch_size: int) -> Tensor:
        """Root mean squared distance of a run from the flow, shape (time,)."""
        moved = (step_size * self.displacement).square().sum(-1)
        return (step_size / batch_size * self.spread + moved).sqrt()


def predicted(
    task: LinearRegression,
    attention: Attention,
    length: int,
    times: np.ndarray,
    prompts: int,
    generator: torch.Generator,
    *,
    parametrization: Form = "full",
    tolerance: float = 1e-7,
    resolution: float = 1.0,
) -> Law:
    """The law of SGD without a run: P' = -HP - PH + C, P(0) = 0, along the flow.

    C is the covariance of the gradient of one prompt, from ``prompts`` drawn ones at NOISE_TIMES
    times: formulas (dyn.11-12) of docs/mathematics/dynamics.md.
    """
    options: dict[str, Any] = {
        "times": times,
        "tolerance": tolerance,
        "parametrization": parametrization,
    }
    flow = gradient_flow(task, attention, length, float(times[-1]), **options).completed()
    line = linearize(flow, resolution)
    count = min(NOISE_TIMES, len(flow.times))
    at = flow.times[torch.linspace(0, len(flow.times) - 1, count).round().long().unique()]
    noise = torch.stack(
        [gradient_noise(task, flow, float(time), length, prompts, generator) for time in at], 1
    )  # (group, noise time, p, p)
    source = between(at, noise, line.nodes.reshape(-1), 1).reshape(GROUPS, *line.hessian.shape)
    along = line.covariance(source)[:, line.reported]  # (group, time, p, p)
    error = along.diagonal(dim1=-2, dim2=-1).sum(-1).std(0) / math.sqrt(GROUPS)
    return Law(flow, gap_of(line).displacement, along.mean(0), error)


def gradient_noise(
    task: LinearRegression,
    flow: Trajectory,
    time: float,
    length: int,
    prompts: int,
    generator: torch.Generator,
) -> Tensor:
    """Covariance of the gradient of a single prompt on the way, shape (group, p, p)."""
    each = prompts // GROUPS
    chunk = max(1, min(each, CHUNK // (length * task.token_dim)))
    with torch.enable_grad():
        point = flow.theta(time).unsqueeze(0).requires_grad_()
        layer = flow.parametrization.layer(point)
        flat = torch.cat([part.reshape(-1) for part in layer])
        jacobian = rows(flat.unsqueeze(0), point)[0]  # (m, p)
    U, V = (part.detach() for part in layer)
    found = []
    for _ in range(GROUPS):
        total, square = jacobian.new_zeros(len(flat)), jacobian.new_zeros(len(flat), len(flat))
        for done in range(0, each, chunk):
            count = min(chunk, each - done)
            contexts, query, answer = task.draw_contexts(count, generator)
            tokens = task.draw_tokens(contexts, length, generator)
            given = (part[None] for part in (tokens, query, answer))
            factors = prompt_factors(flow.objective.kind, U, V, *given)
            pull, error, mean = (part[0] for part in factors)
            in_u = pull.unsqueeze(-1) * query.unsqueeze(-2)
            in_v = error.unsqueeze(-1) * mean.unsqueeze(-2)
            drawn = torch.cat([in_u.reshape(count, -1), in_v.reshape(count, -1)], -1)
            total, square = total + drawn.sum(0), square + drawn.mT @ drawn
        center = total / each
        covariance = (square - each * center.unsqueeze(-1) * center) / (each - 1)
        found.append(jacobian.mT @ covariance @ jacobian)
    return torch.stack(found)


def ensemble(
    task: LinearRegression,
    attention: Attention,
    length: int,
    step_size: float,
    steps: int,
    batch: int,
    runs: int,
    generator: torch.Generator,
    *,
    parametrization: Form = "full",
    record: int = 41,
) -> tuple[Tensor, Tensor]:
    """Independent runs of SGD on fresh prompts, side by side: times, and θ (run, time, p)."""
    chosen = chosen_parametrization(task, parametrization)
    theta = chosen.start(attention).detach().expand(runs, -1).clone()
    side = max(1, CHUNK // (batch * length * task.token_dim))  # runs drawn together
    wanted = {round(i * steps / (record - 1)) for i in range(record)}
    path = [theta]
    for step in range(1, steps + 1):
        with torch.enable_grad():
            point = theta.detach().requires_grad_()
            U, V = chosen.layer(point)
            slopes = []
            for begin in range(0, runs, side):
                now = slice(begin, begin + side)
                u, v = U[now].detach(), V[now].detach()
                contexts, query, answer = task.draw_contexts(len(u) * batch, generator)
                tokens = task.draw_tokens(contexts, length, generator)
                tokens, query, answer = (
                    part.reshape(len(u), batch, *part.shape[1:]) for part in (tokens, query, answer)
                )
                pull, error, mean = prompt_factors(type(attention), u, v, tokens, query, answer)
                slopes.append((pull.mT @ query / batch, error.mT @ mean / batch))
            in_layer = [torch.cat(parts) for parts in zip(*slopes, strict=True)]
            (gradient,) = torch.autograd.grad([U, V], point, in_layer)
        theta = theta - step_size * gradient
        if step in wanted:
            path.append(theta)
    return step_size * torch.tensor(sorted(wanted), dtype=torch.float64), torch.stack(path, 1)


def _mean_error(samples: Tensor) -> tuple[float, float]:
    """Mean and its standard error over runs."""
    return float(samples.mean()), float(samples.std() / math.sqrt(len(samples)))


def _generator(config: DiscreteConfig, number: int) -> torch.Generator:
    """A stream of its own for every part of the study."""
    return torch.Generator().manual_seed(1_000_003 * config.seed + number)


def batches(config: DiscreteConfig, progress: Progress) -> xr.Dataset:
    """Predicted spread and gap over step and batch sizes, then runs, in full (U, V)."""
    (task, start), length, until = problem(config), config.sgd_length, config.sgd_until
    progress("predicted spread")
    times = np.linspace(0, until, config.sgd_times)
    law = predicted(task, start, length, times, config.noise_prompts, _generator(config, 1))
    found: list[dict[str, float]] = []
    for number, (step_size, batch, runs) in enumerate(config.batches):
        progress(f"step size {step_size:g}, batch {batch}")
        sizes = (length, step_size, round(until / step_size), batch, runs)
        generator = _generator(config, 10 + number)
        at, theta = ensemble(task, start, *sizes, generator, record=config.sgd_times)
        late = at >= until / 4  # spreads have grown
        around = (theta - theta.mean(0)).square().sum(-1) * runs / (runs - 1)
        spread, spread_error = _mean_error(around[:, late].mean(-1))
        away = (theta - path_at(law.flow, at, until)).square().sum(-1)
        square, square_error = _mean_error(away[:, late].mean(-1))
        root = law.root_mean_square(step_size, batch)
        known = (law.spread, law.spread_error, root.square())
        tr, own, gap = (float(np.interp(at[late], law.flow.times, each).mean()) for each in known)
        found.append(
            {
                "sgd_spread": spread,
                "sgd_spread_error": spread_error,
                "predicted_spread": step_size / batch * tr,
                "predicted_spread_error": step_size / batch * own,
                "sgd_gap": math.sqrt(square),
                "sgd_gap_error": square_error / (2 * math.sqrt(square)),
                "predicted_sgd_gap": math.sqrt(gap),
            }
        )
    columns = zip(*config.batches, strict=True)
    names = ("batch_step_size", "batch_size", "batch_runs")
    return xr.Dataset(
        {name: ("batch", [row[name] for row in found]) for name in found[0]},
        {name: ("batch", list(column)) for name, column in zip(names, columns, strict=True)},
    )


def authors(config: DiscreteConfig, progress: Progress) -> xr.Dataset:
    """The authors' SGD: its law to the end of their training, and runs of its first part."""
    own, length, runs = paper.PaperConfig(), config.paper_length, config.paper_runs
    task, (factors, layer) = paper.task(own, "intended"), paper.start(own, "softmax")
    step_size, batch, steps = own.learning_rate, own.batch_size, config.paper_steps
    first = np.linspace(0, step_size * steps, 11)
    later = np.geomspace(0.1, config.paper_until, config.paper_times)
    times = np.unique(np.concatenate([first, later]).round(12))
    progress("predicted spread")
    # fine enough beside the noise of the prompts
    options: dict[str, Any] = {"parametrization": factors, "tolerance": 1e-5, "resolution": 1e9}
    drawn, generator = config.paper_prompts, _generator(config, 300)
    law = predicted(task, layer, length, times, drawn, generator, **options)
    progress("SGD")
    sizes, options = (length, step_size, steps, batch, runs), {"parametrization": factors}
    generator = _generator(config, 301)
    at, theta = ensemble(task, layer, *sizes, generator, record=len(first), **options)
    squares = (theta - theta.mean(0)).square().sum(-1) * runs / (runs - 1)
    spread, root = step_size / batch * law.spread, law.root_mean_square(step_size, batch)
    error = step_size / batch * law.spread_error / (2 * spread.sqrt().clamp_min(1e-300))
    measured = {
        "paper_spread": squares.mean(0),
        "paper_spread_error": squares.std(0) / math.sqrt(runs),
        "paper_predicted": spread[torch.searchsorted(law.flow.times, at - 1e-9)],
    }
    size = law.flow.parameters.norm(dim=-1)
    along = {"paper_law": root, "paper_law_error": error, "paper_size": size}
    return xr.Dataset(
        {name: ("paper_step", value.numpy()) for name, value in measured.items()}
        | {name: ("paper_time", value.numpy()) for name, value in along.items()},
        {"paper_time": times, "paper_step": at.numpy()},
    )
