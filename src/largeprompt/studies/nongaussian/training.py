"""Training on inputs that are not Gaussian: flows on the exact risk of every length, on drawn
prompts, and on two infinite prompts.

Queries are the nodes of a rule for their law, and w and the noise are averaged out: prompts alone
are random. (On the exact risk of Gaussian inputs queries are averaged out too.) Inputs are
independent coordinates of unit variance and symmetric laws, so that from A = aI the flow on an
exact risk keeps A = aI.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from largeprompt.measures import Discrete, Gaussian, GaussianMixture, Measure, Rademacher, Uniform
from largeprompt.measures.numerics.rules import gauss_rule
from largeprompt.runs.study import Progress
from largeprompt.studies.nongaussian.config import CONTROL, NonGaussianConfig
from largeprompt.studies.nongaussian.parts import F, two_components
from largeprompt.training import Block, LinearRegression, MeasureRegression, fixed_step_flow

DIM = 2
SEPARATION = 0.8  # of the mixture's components, half their distance
REACH = 1.5  # the size of A up to which risks are known at first
DEGREE = 24  # of polynomials in it
AT_ONCE = 8  # nodes whose risks are computed together
# a and b at time 0; the second is balanced
STARTS = {"small tilt": (0.05, 2.5), "moderate tilt": (0.5 / math.sqrt(2), 0.5)}


def inputs_law(name: str, nodes: int) -> tuple[Measure, Discrete]:
    """The law of the inputs in R², and its rule."""
    eye = torch.eye(DIM, dtype=F)
    if name == "mixture":
        line = gauss_rule(two_components(SEPARATION), nodes)
        rule = Discrete(
            torch.cartesian_prod(line.atoms[:, 0], line.atoms[:, 0]),
            torch.outer(line.weights, line.weights).flatten(),
        )
        means = SEPARATION * torch.tensor(
            [[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]], dtype=F
        )
        shares = torch.full((4,), 0.25, dtype=F)
        return GaussianMixture(shares, means, ((1 - SEPARATION**2) * eye).expand(4, DIM, DIM)), rule
    laws: dict[str, Measure] = {
        "Rademacher": Rademacher(DIM),
        "uniform": Uniform(DIM),
        "Gaussian": Gaussian(0 * eye[0], eye),
    }
    return laws[name], gauss_rule(laws[name], nodes)


def folded(rule: Discrete, signs: bool) -> Discrete:
    """Atoms up to x → -x, or with ``signs`` up to every change of signs and order: all that A = aI
    needs.
    """
    x = (
        rule.atoms.abs().sort(-1).values
        if signs
        else rule.atoms * torch.where(rule.atoms[:, :1] < 0, -1.0, 1.0)
    )
    kept, place = torch.unique(x.round(decimals=10), dim=0, return_inverse=True)
    return Discrete(kept, torch.zeros(len(kept), dtype=F).index_add(0, place, rule.weights))


def _starts(config: NonGaussianConfig) -> Tensor:
    """θ = (A, b) at time 0, shape (start, 5)."""
    return torch.tensor(
        [[a, 0.0, 0.0, a, b] for a, b in (STARTS[name] for name in config.starts)], dtype=F
    )


def _flow(config: NonGaussianConfig, risk: Callable[[Tensor], Tensor], starts: Tensor) -> Tensor:
    """Parameters along the flow from all starts, shape (start, time, p)."""
    return torch.from_numpy(
        fixed_step_flow(risk, starts, config.until, config.steps).completed().states
    ).transpose(0, 1)


def _gaussian_flows(
    config: NonGaussianConfig, task: LinearRegression, lengths: list[float]
) -> Tensor:
    """θ for Gaussian inputs and queries, shape (start, length, time, 5), all side by side."""
    starts = _starts(config).repeat_interleave(len(lengths), 0)
    every = lengths * len(config.starts)
    path = _flow(config, lambda theta: task.block_risks(*Block(DIM).split(theta), every), starts)
    return path.reshape(len(config.starts), len(lengths), *path.shape[1:])


def parabolas(
    task: MeasureRegression, queries: Discrete, length: float, largest: float
) -> Callable[[Tensor], Tensor]:
    """Risk at A = aI, 0 <= a <= ``largest``, and b, from pairs (a, b), shape (run, 2): in b a
    parabola, in a interpolated.

    The risk is exact at DEGREE + 1 Chebyshev nodes, and between them to eight digits and more.
    """
    eye, half = torch.eye(DIM, dtype=F), largest / 2

    def coefficients(x: np.ndarray) -> np.ndarray:
        at = half * (1 + torch.from_numpy(x)[:, None]).expand(-1, 2)
        sides = torch.tensor([1.0, -1.0], dtype=F).expand_as(at)
        parts = zip(at.split(AT_ONCE), sides.split(AT_ONCE), strict=True)
        plus, minus = torch.cat(
            [
                task.block_risk(a[..., None, None] * eye, b, length, queries=queries)
                for a, b in parts
            ]
        ).unbind(-1)
        return torch.stack([(plus - minus) / 2, (plus + minus) / 2 - silent], -1).numpy()

    silent = float(task.block_risk(0 * eye, torch.zeros((), dtype=F), length, queries=queries))
    # (k, 2): of b and b²
    known = torch.from_numpy(np.polynomial.chebyshev.chebinterpolate(coefficients, DEGREE))

    def risk(pairs: Tensor) -> Tensor:
        b, before, now = pairs[:, 1], torch.ones_like(pairs[:, 0]), pairs[:, 0] / half - 1
        x, found = now, known[0] + now.unsqueeze(-1) * known[1]
        for each in known[2:]:  # T_k+1 = 2xT_k - T_k-1
            before, now = now, 2 * x * now - before
            found = found + now.unsqueeze(-1) * each
        return silent + b * found[:, 0] + b**2 * found[:, 1]

    return risk


def _isotropic_flow(
    config: NonGaussianConfig, task: MeasureRegression, queries: Discrete, length: float
) -> Tensor:
    """The same for other inputs, one length: the flow of (‖A‖_F, b), which with the length of A as
    coordinate is that of (A, b).
    """
    starts, scale = _starts(config)[:, [0, -1]], torch.tensor([math.sqrt(DIM), 1.0], dtype=F)
    largest = max(REACH, 2 * float(starts[:, 0].max()))
    while True:
        known = parabolas(task, queries, length, largest)
        a, b = (_flow(config, lambda pair: known(pair / scale), starts * scale) / scale).unbind(-1)  # noqa: B023
        if float(a.abs().max()) <= largest:
            return torch.stack([a, 0 * a, 0 * a, a, b], -1)
        largest *= 2


def trained(config: NonGaussianConfig, name: str, progress: Progress) -> xr.Dataset:
    """Flows of one law: limit and Gaussian theory, exact risk of every length,
    then drawn prompts.
    """
    law, rule = inputs_law(name, config.nodes)
    eye = torch.eye(DIM, dtype=F)
    task, library = (
        MeasureRegression(law, eye, config.noise_variance, rule),
        LinearRegression(eye, eye, config.noise_variance),
    )
    lengths = sorted({*config.flow_lengths, *config.drawn_lengths})
    progress(f"training on {name} inputs: exact risks")
    every = [*map(float, lengths), math.inf]
    gauss = _gaussian_flows(
        config, library, every if name == CONTROL else [math.inf]
    )  # every law with this covariance has this limit
    if name == CONTROL:
        paths = gauss
    else:
        paths = torch.stack(
            [_isotropic_flow(config, task, folded(rule, signs=True), length) for length in every], 1
        )
    # (start, length, time, 5)
    flow, limit, gauss, block = paths[:, :-1], paths[:, -1], gauss[:, -1], Block(DIM)
    theta = ("start", "time", "parameter")
    misled, right = (task.block_risk(*block.split(path[:, -1])).numpy() for path in (gauss, limit))
    predicted = xr.Dataset(
        {
            "limit_theta": (theta, limit.numpy()),
            "gauss_theta": (theta, gauss.numpy()),
            "flow_theta": (("start", "flow_length", *theta[1:]), flow.numpy()),
            "flow_distance": (
                ("start", "flow_length"),
                _supremum(flow, limit.unsqueeze(1)).numpy(),
            ),
            "flow_gauss_distance": (
                ("start", "flow_length"),
                _supremum(flow, gauss.unsqueeze(1)).numpy(),
            ),
            "level": ("start", _supremum(limit, gauss).numpy()),
            "limit_risk": ("start", right),
            "misled_risk": ("start", misled),
        },
        coords={
            "start": list(config.starts),
            "time": np.linspace(0.0, config.until, config.steps + 1),
            "parameter": block.names(),
            "flow_length": [float(length) for length in lengths],
        },
    )
    seed = (1000 * config.seed + config.inputs.index(name)) * 1000
    drawn = _drawn(
        config, task, folded(rule, signs=False), {"distance": limit, "gauss": gauss}, seed, progress
    )
    return predicted.merge(drawn).expand_dims(inputs=[name])


def _supremum(path: Tensor, other: Tensor) -> Tensor:
    """sup over time of the distance of two paths (..., time, p)."""
    distance: Tensor = torch.linalg.vector_norm(path - other, dim=-1)
    return distance.amax(-1)


def _streams(
    config: NonGaussianConfig, task: MeasureRegression, count: int, seed: int
) -> list[Tensor]:
    """Streams of inputs (query, L, d) for one set: stream m serves every length that has more than
    m prompts for each query.
    """
    generator = torch.Generator().manual_seed(seed)
    found = []
    for m in range(max(_prompts(config, count, length) for length in config.drawn_lengths)):
        longest = max(
            length for length in config.drawn_lengths if _prompts(config, count, length) > m
        )
        found.append(task.inputs.sample(longest * count, generator).reshape(count, longest, DIM))
    return found


def _prompts(config: NonGaussianConfig, queries: int, length: int) -> int:
    """Prompts for each query."""
    return max(1, round(config.drawn_tokens / (length * queries)))


def _drawn(
    config: NonGaussianConfig,
    task: MeasureRegression,
    queries: Discrete,
    others: dict[str, Tensor],
    seed: int,
    progress: Progress,
) -> xr.Dataset:
    """Flows on the mean risk of drawn prompts, for independent sets of them; lengths share their
    streams of tokens.
    """
    count, split = queries.count, Block(DIM).split
    sets = [_streams(config, task, count, seed + i) for i in range(config.sets)]
    found: list[xr.Dataset] = []
    for length in config.drawn_lengths:
        progress(f"training on {task.inputs!r}: drawn prompts, L = {length}")
        times = _prompts(config, count, length)
        tokens = torch.stack(
            [torch.cat([stream[:, :length] for stream in streams[:times]]) for streams in sets]
        )
        asked, shares = queries.atoms.repeat(times, 1), queries.weights.repeat(times) / times

        def risk(theta: Tensor) -> Tensor:
            return task.prompt_risk(*split(theta), tokens, asked, shares)  # noqa: B023

        path = torch.stack(
            [_flow(config, risk, start.expand(config.sets, -1)) for start in _starts(config)]
        )
        theta = ("start", "time", "parameter")  # of a path of each set, (start, set, time, 5)
        data = xr.Dataset(
            {
                "trained_theta": (theta, path.mean(1)),
                "trained_error": (theta, path.std(1) / math.sqrt(config.sets)),
            }
        )
        for name, other in others.items():
            data[f"trained_{name}"] = ("start", _supremum(path.mean(1), other))
            data[f"trained_{name}_error"] = ("start", _jackknife(path, other))
        found.append(data)
    joined = xr.concat(
        found, xr.Variable("drawn_length", [float(length) for length in config.drawn_lengths])
    )
    return joined.transpose("start", "drawn_length", ...)


def _jackknife(path: Tensor, other: Tensor) -> np.ndarray:
    """Standard error of the supremum distance of the mean path, leaving out one set at a time."""
    count = path.shape[1]
    left = (path.sum(1, keepdim=True) - path) / (count - 1)
    values = _supremum(left, other.unsqueeze(1))  # (start, set)
    spread = (values - values.mean(1, keepdim=True)).square().sum(1) * (count - 1) / count
    return spread.sqrt().numpy()
