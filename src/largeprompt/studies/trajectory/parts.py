"""Tubes around the infinite-prompt flow, and the excess risk of every length in closed form."""

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import pydantic
import torch
import xarray as xr

from largeprompt.runs.settings import (
    AnyLength,
    Dimension,
    Distinct,
    Few,
    Increasing,
    Positive,
    settings,
)
from largeprompt.runs.study import Progress, side_by_side
from largeprompt.studies.covariances import (
    KINDS,
    Covariance,
    F,
    block_start,
    covariance,
    largest_alpha,
)
from largeprompt.studies.ranges import Decade
from largeprompt.training import LinearRegression, gradient_flow, isotropic_optimum
from largeprompt.training.gaps.tube import tube as tube_around


@settings
class TrajectoryConfig:
    """Noiseless regression from the theorem's balanced start; the excess risk is traced for
    identity covariance.
    """

    dim: Dimension = 5
    covariance: Covariance = "toeplitz"
    lengths: Increasing[Annotated[AnyLength, pydantic.Field(le=10**15)]] = (
        30,
        100,
        1000,
        10_000,
        100_000,
        1_000_000,
    )
    until: Positive = 20.0
    times: Few = 61
    excess_dims: Distinct[Dimension] = (1, 2, 3, 5, 10)
    excess_decades: Annotated[Increasing[Decade], pydantic.Field(min_length=2, max_length=2)] = (
        1,
        9,
    )
    targets: Distinct[Positive] = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)


def tube(config: TrajectoryConfig, kind: str, progress: Progress) -> xr.Dataset:
    """Flows of all lengths around that of the infinite prompt, and a flow from another start as a
    control.
    """
    d, sigma, until = config.dim, covariance(config.covariance, config.dim), config.until
    task, alpha = LinearRegression(sigma, torch.eye(d, dtype=F), 0.0), 0.9 * largest_alpha(sigma)
    balanced, other = (KINDS[kind](*block_start(d, alpha, b)) for b in (alpha, 3 * alpha))
    options: dict[str, Any] = {
        "parametrisation": "block",
        "times": np.append(0.0, np.geomspace(until / 1000, until, config.times)),
    }
    watch = lambda time: progress(f"time {time:.3g}")  # noqa: E731
    found = tube_around(task, balanced, list(config.lengths), until, progress=watch, **options)
    astray = gradient_flow(task, other, config.lengths[-1], until, **options).completed()
    data = found.to_xarray()[["distance", "envelope", "risk", "limit_risk"]]
    data["astray"] = ("time", (astray.parameters - found.limit.parameters[0]).norm(dim=-1).numpy())
    data["theta"] = (("length", "time", "parameter"), found.flow.parameters.numpy())
    data["limit_theta"] = (("time", "parameter"), found.limit.parameters[0].numpy())
    named = data.assign_coords(parameter=found.flow.parametrisation.names())
    return named.rename({name: f"{kind}_{name}" for name in data.data_vars})


def excess(config: TrajectoryConfig, d: int, progress: Progress) -> xr.Dataset:
    """Excess risk (the Bayes risk is 0 here) at the infinite-prompt endpoint and at the optimum of
    each length, W = I/d.
    """
    task = LinearRegression(torch.eye(d, dtype=F), torch.eye(d, dtype=F) / d, 0.0)
    low, high = config.excess_decades
    lengths = np.logspace(low, high, 2 * (high - low) + 1).round()
    b_end, c = d**0.25, (d + 1) / lengths
    a, b = torch.tensor([1 / b_end], dtype=F), torch.tensor([b_end], dtype=F)
    found = {
        "softmax_at_limit_endpoint": [
            float(task.isotropic_risk(a, b, float(length))[0]) for length in lengths
        ],
        "linear_predicted": (c / (1 + c) / 2).tolist(),
    }
    for kind, attention in KINDS.items():
        start, risks = (1 / b_end, b_end), list[float]()
        # from the longest prompt, so that each optimum starts the search of the next
        for length in lengths[::-1]:
            progress(f"{kind}, L = {length:.3g}")
            best = isotropic_optimum(task, float(length), attention, start=start)
            start, risks = (best.a, best.b), [best.risk, *risks]
        found[f"{kind}_best"] = risks
    data = {name: (("dim", "excess_length"), [values]) for name, values in found.items()}
    return xr.Dataset(data, coords={"dim": [d], "excess_length": lengths})


def with_needed_lengths(config: TrajectoryConfig, parts: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Tubes and excess risks side by side, and the measured L(eps) of both attentions."""
    data, targets = side_by_side(config, parts), np.asarray(config.targets)
    for kind in KINDS:
        risks = parts["excess"][f"{kind}_best"]
        needed = [
            crossing(risks.excess_length.values, risks.sel(dim=d).values, targets)
            for d in config.excess_dims
        ]
        data[f"needed_length_{kind}"] = (("dim", "epsilon"), needed)
    return data.assign_coords(epsilon=targets)


def crossing(lengths: np.ndarray, excess: np.ndarray, targets: np.ndarray) -> list[float]:
    """Length from which on the excess is at most each target, log-log interpolated; the first if
    always, NaN if never.
    """
    x, y = np.log(lengths), np.log(excess)
    found = []
    for target in np.log(targets):
        above = np.flatnonzero(y > target)
        i = int(above[-1]) if len(above) else -1
        if i == len(x) - 1:
            found.append(np.nan)
        else:
            found.append(
                float(lengths[0])
                if i < 0
                else float(np.exp(np.interp(-target, -y[i : i + 2], x[i : i + 2])))
            )
    return found
