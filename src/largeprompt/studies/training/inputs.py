"""Training on inputs that are not Gaussian: exact flows of every length around two limits.

Inputs are independent coordinates of unit variance and of a symmetric law in R², so that from
A = aI the flow keeps A = aI. Queries are the nodes of a rule; w and the noise are averaged out.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import xarray as xr
from scipy.integrate import solve_ivp
from torch import Tensor

from largeprompt.measures import Discrete, Rademacher, Uniform
from largeprompt.measures.numerics.rules import gauss_rule
from largeprompt.runs.study import Progress
from largeprompt.studies.covariances import F
from largeprompt.studies.training.config import TrainingConfig
from largeprompt.training import LinearRegression, MeasureRegression, RiskError
from largeprompt.training.dynamics.parameters import Block

DEGREE = 24  # of polynomials in a: the risk between their nodes is good to eight digits
AT_ONCE = 8  # nodes whose risks are computed together
EYE = torch.eye(2, dtype=F)
LAWS = {"Rademacher": Rademacher(2), "uniform": Uniform(2)}
# a and b at time 0; the second is balanced
STARTS = {"small tilt": (0.05, 2.5), "moderate tilt": (0.5 / math.sqrt(2), 0.5)}


def inputs(config: TrainingConfig, name: str, progress: Progress) -> xr.Dataset:
    """Flows of one law at every length, at its tilt limit, and by the Gaussian theory."""
    progress(f"training on {name} inputs")
    rule = gauss_rule(LAWS[name], 10)
    task = MeasureRegression(LAWS[name], EYE, config.noise_variance, rule)
    gaussian, queries = LinearRegression(EYE, EYE, config.noise_variance), folded(rule)
    starts = torch.tensor(list(STARTS.values()), dtype=F)
    lengths = [*map(float, config.input_lengths), math.inf]
    paths = torch.stack([_flow(config, task, queries, length) for length in lengths], 1)
    flow, limit = paths[:, :-1], paths[:, -1]

    def gaussian_risk(theta: Tensor) -> Tensor:
        return gaussian.block_risks(*Block(2).split(theta), [math.inf] * len(theta))

    misled = _solved(config, gaussian_risk, _blocks(starts))
    risks = (task.block_risk(*Block(2).split(path[:, -1])).numpy() for path in (limit, misled))
    limit_risk, misled_risk = risks
    grid = ("input_start", "input_length")
    return xr.Dataset(
        {
            "input_distance": (grid, _supremum(flow, limit.unsqueeze(1)).numpy()),
            "input_gaussian_distance": (grid, _supremum(flow, misled.unsqueeze(1)).numpy()),
            "input_level": ("input_start", _supremum(limit, misled).numpy()),
            "input_limit_risk": ("input_start", limit_risk),
            "input_gaussian_risk": ("input_start", misled_risk),
        },
        {"input_start": list(STARTS), "input_length": lengths[:-1]},
    ).expand_dims(inputs=[name])


def folded(rule: Discrete) -> Discrete:
    """Atoms up to every change of signs and order: all that A = aI needs."""
    x = rule.atoms.abs().sort(-1).values
    kept, place = torch.unique(x.round(decimals=10), dim=0, return_inverse=True)
    return Discrete(kept, torch.zeros(len(kept), dtype=F).index_add(0, place, rule.weights))


def _blocks(pairs: Tensor) -> Tensor:
    """θ = (A, b) of pairs (a, b): A = aI."""
    a, b = pairs.unbind(-1)
    return torch.stack([a, 0 * a, 0 * a, a, b], -1)


def _solved(config: TrainingConfig, risk: Callable[[Tensor], Tensor], starts: Tensor) -> Tensor:
    """Parameters from all starts, shape (start, time, p), with short steps for every risk."""
    until, steps = config.input_until, config.input_steps

    def slope(_: float, flat: np.ndarray) -> np.ndarray:
        with torch.enable_grad():
            theta = torch.from_numpy(flat).reshape(starts.shape).requires_grad_()
            (gradient,) = torch.autograd.grad(risk(theta).sum(), theta)
        return -gradient.flatten().numpy()

    times, first = np.linspace(0.0, until, steps + 1), starts.flatten().numpy()
    options: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-12, "max_step": 4 * until / steps}
    found = solve_ivp(slope, (0.0, until), first, "DOP853", t_eval=times, **options)
    if not found.success:
        raise RiskError(f"training: {found.message}")
    return torch.from_numpy(found.y.T).reshape(-1, *starts.shape).transpose(0, 1)


def _supremum(path: Tensor, other: Tensor) -> Tensor:
    """sup over time of the distance of two paths (..., time, p)."""
    distance: Tensor = (path - other).norm(dim=-1)
    return distance.amax(-1)


def _flow(
    config: TrainingConfig, task: MeasureRegression, queries: Discrete, length: float
) -> Tensor:
    """Flow of (A, b) at one length, as that of (‖A‖_F, b): in these coordinates it is the same."""
    starts = torch.tensor(list(STARTS.values()), dtype=F)
    scale, largest = torch.tensor([math.sqrt(2), 1.0], dtype=F), 1.5
    while True:
        known = parabolas(task, queries, length, largest)
        pairs = _solved(config, lambda pair: known(pair / scale), starts * scale) / scale  # noqa: B023
        if float(pairs[..., 0].abs().max()) <= largest:
            return _blocks(pairs)
        largest *= 2


def parabolas(
    task: MeasureRegression, queries: Discrete, length: float, largest: float
) -> Callable[[Tensor], Tensor]:
    """Risk of pairs (a, b), 0 <= a <= ``largest``: in b a parabola, in a a polynomial.

    The risk is exact at DEGREE + 1 Chebyshev nodes.
    """
    half = largest / 2

    def coefficients(x: np.ndarray) -> np.ndarray:
        at = half * (1 + torch.from_numpy(x)[:, None]).expand(-1, 2)
        sides = torch.tensor([1.0, -1.0], dtype=F).expand_as(at)
        parts = zip(at.split(AT_ONCE), sides.split(AT_ONCE), strict=True)
        risks = [
            task.block_risk(a[..., None, None] * EYE, b, length, queries=queries) for a, b in parts
        ]
        plus, minus = torch.cat(risks).unbind(-1)
        return torch.stack([(plus - minus) / 2, (plus + minus) / 2 - silent], -1).numpy()

    silent = float(task.block_risk(0 * EYE, torch.zeros((), dtype=F), length, queries=queries))
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
