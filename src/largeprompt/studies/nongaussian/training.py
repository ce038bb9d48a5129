"""Training on inputs that are not Gaussian: flows on the exact risk of every length, on drawn prompts, and on two infinite prompts.

Queries are the nodes of a rule for their law, the same for all flows, and w and the noise are averaged out: prompts alone are
random. Inputs are independent coordinates of unit variance and symmetric laws, so that from A = aI the flow on an exact risk
keeps A = aI.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from largeprompt.measures import Discrete, Gaussian, GaussianMixture, Measure, Rademacher, Uniform
from largeprompt.measures.numerics.rules import gauss_rule, product_rule
from largeprompt.runs.study import Progress
from largeprompt.studies.nongaussian.families import F, two_components
from largeprompt.training import Block, LinearRegression
from largeprompt.training.tasks.measure_regression import MeasureRegression, fixed_step_flow

DIM = 2
SEPARATION = 0.8  # of the mixture's components, half their distance
STARTS = {"small tilt": (0.05, 2.5), "moderate tilt": (0.5 / math.sqrt(2), 0.5)}  # a and b at time 0; the second is balanced
GAUSSIAN_QUERIES = 64


def inputs_law(name: str, nodes: int) -> tuple[Measure, Discrete]:
    """The law of the inputs in R², and its rule."""
    eye = torch.eye(DIM, dtype=F)
    if name == "mixture":
        rule = gauss_rule(two_components(SEPARATION), nodes)
        means = SEPARATION * torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]], dtype=F)
        shares = torch.full((4,), 0.25, dtype=F)
        return GaussianMixture(shares, means, ((1 - SEPARATION**2) * eye).expand(4, DIM, DIM)), product_rule(rule, rule)
    laws: dict[str, Measure] = {"Rademacher": Rademacher(DIM), "uniform": Uniform(DIM), "Gaussian": Gaussian(0 * eye[0], eye)}
    return laws[name], gauss_rule(laws[name], nodes)


def folded(rule: Discrete, signs: bool) -> Discrete:
    """Atoms up to x → -x, or with ``signs`` up to every change of signs and order: all that A = aI needs."""
    x = rule.atoms.abs().sort(-1).values if signs else rule.atoms * torch.where(rule.atoms[:, :1] < 0, -1.0, 1.0)
    kept, place = torch.unique(x.round(decimals=10), dim=0, return_inverse=True)
    return Discrete(kept, torch.zeros(len(kept), dtype=F).index_add(0, place, rule.weights))


def gaussian_flow(config: Any) -> Tensor:
    """θ of the Gaussian theory's infinite prompt, shape (start, time, 5): the same for every law with these covariances."""
    task = LinearRegression(torch.eye(DIM, dtype=F), torch.eye(DIM, dtype=F), config.noise_variance)
    x, block = task.quadratic_queries(), Block(DIM)
    path = fixed_step_flow(
        lambda theta: task.block_risks(*block.split(theta), x, [math.inf] * len(theta), True),
        _starts(config),
        config.until,
        config.steps,
    )
    return path.transpose(0, 1)


def _starts(config: Any) -> Tensor:
    """θ = (A, b) at time 0, shape (start, 5)."""
    return torch.tensor([[a, 0.0, 0.0, a, b] for a, b in (STARTS[name] for name in config.starts)], dtype=F)


def compute(config: Any, name: str, index: int, progress: Progress) -> xr.Dataset:
    """Flows of one law: limit and Gaussian theory, exact risk of every length, then drawn prompts."""
    law, rule = inputs_law(name, config.nodes)
    eye = torch.eye(DIM, dtype=F)
    task = MeasureRegression(law, eye, config.noise_variance, rule)
    lengths = sorted({*config.flow_lengths, *config.drawn_lengths})
    gauss, starts = gaussian_flow(config), _starts(config)
    if name == "Gaussian":
        library = LinearRegression(eye, eye, config.noise_variance)
        points = library.block_queries(GAUSSIAN_QUERIES, config.seed)
        queries = Discrete(points, torch.full((len(points),), 1 / len(points), dtype=F))
        block = Block(DIM)

        def exact(length: float) -> Callable[[Tensor], Tensor]:
            return lambda theta: library.block_risks(*block.split(theta), points, [length] * len(theta), True)

        def follow(length: float) -> Tensor:
            return fixed_step_flow(exact(length), starts, config.until, config.steps).transpose(0, 1)
    else:
        queries, few = folded(rule, signs=False), folded(rule, signs=True)

        def follow(length: float) -> Tensor:
            def risk(pair: Tensor) -> Tensor:  # of (‖A‖_F, b): with the length of A as coordinate the flow is that of (A, b)
                return task.block_risk(pair[:, 0, None, None] * eye / math.sqrt(DIM), pair[:, 1], length, queries=few)

            scale = torch.tensor([math.sqrt(DIM), 1.0], dtype=F)
            pairs = fixed_step_flow(risk, starts[:, [0, -1]] * scale, config.until, config.steps).transpose(0, 1) / scale
            a, zero = pairs[..., 0], 0 * pairs[..., 0]
            return torch.stack([a, zero, zero, a, pairs[..., 1]], -1)

    limit = follow(math.inf)
    flows = []
    for length in lengths:
        progress(f"training on {name} inputs: exact risk, L = {length}")
        flows.append(follow(length))
    flow = torch.stack(flows, 1)  # (start, length, time, 5)
    data = _predictions(config, task, limit, gauss, flow, lengths)
    return data.merge(_drawn(config, task, queries, starts, limit, gauss, index, progress)).expand_dims(inputs=[name])


def _supremum(path: Tensor, other: Tensor) -> Tensor:
    """sup over time of the distance of two paths (..., time, p)."""
    distance: Tensor = torch.linalg.vector_norm(path - other, dim=-1)
    return distance.amax(-1)


def _predictions(
    config: Any, task: MeasureRegression, limit: Tensor, gauss: Tensor, flow: Tensor, lengths: list[int]
) -> xr.Dataset:
    block = Block(DIM)
    ends = {"limit_risk": limit[:, -1], "misled_risk": gauss[:, -1]}
    theta = ("start", "time", "parameter")
    return xr.Dataset(
        {
            "limit_theta": (theta, limit.numpy(), {"long_name": "flow on the tilt limit"}),
            "gauss_theta": (theta, gauss.numpy(), {"long_name": "flow of the Gaussian theory"}),
            "flow_theta": (("start", "flow_length", "time", "parameter"), flow.numpy(), {"long_name": "flow on the exact risk"}),
            "flow_distance": (("start", "flow_length"), _supremum(flow, limit.unsqueeze(1)).numpy()),
            "flow_gauss_distance": (("start", "flow_length"), _supremum(flow, gauss.unsqueeze(1)).numpy()),
            "level": (
                "start",
                _supremum(limit, gauss).numpy(),
                {"long_name": "sup distance of the two infinite prompts, predicted"},
            ),
            **{name: ("start", task.block_risk(*block.split(end)).numpy()) for name, end in ends.items()},
        },
        coords={
            "start": list(config.starts),
            "time": np.linspace(0.0, config.until, config.steps + 1),
            "parameter": block.names(),
            "flow_length": [float(length) for length in lengths],
        },
    )


def _streams(config: Any, task: MeasureRegression, count: int, seed: int) -> list[Tensor]:
    """Streams of inputs (query, L, d) for one set: stream m serves every length that has more than m prompts for each query."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for m in range(max(_prompts(config, count, length) for length in config.drawn_lengths)):
        longest = max(length for length in config.drawn_lengths if _prompts(config, count, length) > m)
        found.append(task.inputs.sample(longest * count, generator).reshape(count, longest, DIM))
    return found


def _prompts(config: Any, queries: int, length: int) -> int:
    """Prompts for each query."""
    return max(1, round(int(config.drawn_tokens) / (length * queries)))


def _drawn(
    config: Any,
    task: MeasureRegression,
    queries: Discrete,
    starts: Tensor,
    limit: Tensor,
    gauss: Tensor,
    index: int,
    progress: Progress,
) -> xr.Dataset:
    """Flows on the mean risk of drawn prompts, for independent sets of them; lengths share their streams of tokens."""
    count, block = queries.count, Block(DIM)
    sets = [_streams(config, task, count, (1000 * config.seed + index) * 1000 + i) for i in range(config.sets)]
    columns: dict[str, list[Any]] = {name: [] for name in ("theta", "error", "distance", "distance_error", "gauss", "gauss_error")}
    for length in config.drawn_lengths:
        progress(f"training on {task.inputs!r}: drawn prompts, L = {length}")
        times = _prompts(config, count, length)
        tokens = torch.stack([torch.cat([stream[:, :length] for stream in streams[:times]]) for streams in sets])
        asked, shares = queries.atoms.repeat(times, 1), queries.weights.repeat(times) / times
        paths = []
        for start in starts:

            def risk(theta: Tensor) -> Tensor:
                return task.prompt_risk(*block.split(theta), tokens, asked, shares)  # noqa: B023

            paths.append(fixed_step_flow(risk, start.expand(config.sets, -1), config.until, config.steps).transpose(0, 1))
        path = torch.stack(paths)  # (start, set, time, 5)
        columns["theta"].append(path.mean(1).numpy())
        columns["error"].append((path.std(1) / math.sqrt(config.sets)).numpy())
        for name, other in (("distance", limit), ("gauss", gauss)):
            columns[name].append(_supremum(path.mean(1), other).numpy())
            columns[f"{name}_error"].append(_jackknife(path, other))
    theta = ("start", "drawn_length", "time", "parameter")
    found: dict[str, Any] = {f"trained_{name}": (theta, np.stack(columns[name], 1)) for name in ("theta", "error")}
    for name, values in columns.items():
        if name not in ("theta", "error"):
            found[f"trained_{name}"] = (("start", "drawn_length"), np.stack(values, 1))
    return xr.Dataset(found, coords={"drawn_length": [float(length) for length in config.drawn_lengths]})


def _jackknife(path: Tensor, other: Tensor) -> np.ndarray:
    """Standard error of the supremum distance of the mean path, leaving out one set at a time."""
    count = path.shape[1]
    left = (path.sum(1, keepdim=True) - path) / (count - 1)
    values = _supremum(left, other.unsqueeze(1))  # (start, set)
    spread = (values - values.mean(1, keepdim=True)).square().sum(1) * (count - 1) / count
    return spread.sqrt().numpy()
