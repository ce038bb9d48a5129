"""K, Q, V and a read-out trained apart: exact flows of all lengths, and SGD as the
authors ran it.
"""

import math
from typing import Any

import numpy as np
import torch
import xarray as xr

from largeprompt.attention import Attention
from largeprompt.runs.study import Progress
from largeprompt.studies.covariances import KINDS, F, covariance
from largeprompt.studies.paper.config import PaperConfig
from largeprompt.training import (
    Factorised,
    LinearRegression,
    gradient_flow,
    stochastic_gradient_descent,
)


def task(config: PaperConfig, setting: str) -> LinearRegression:
    """The intended task, or the released code's: prompts multiplied twice by the Cholesky factor,
    queries not at all.
    """
    d, sigma = config.dim, covariance("toeplitz", config.dim)
    prior = torch.eye(d, dtype=F) / d
    if setting == "intended":
        return LinearRegression(sigma, prior, config.noise_variance)
    factor = torch.linalg.cholesky(sigma)
    twice = factor @ factor  # x = C(Cξ)
    return LinearRegression(
        twice @ twice.mT, prior, config.noise_variance, query_covariance=torch.eye(d, dtype=F)
    )


def start(config: PaperConfig, kind: str) -> tuple[Factorised, Attention]:
    """PyTorch's default start of K, Q, V and the read-out, and the layer that it makes."""
    factors = Factorised.default(config.dim + 1, torch.Generator().manual_seed(config.seed))
    U, V = (part[0] for part in factors.layer(factors.start().unsqueeze(0)))
    return factors, KINDS[kind](U, V)


def flows(config: PaperConfig, setting: str, kind: str, progress: Progress) -> xr.Dataset:
    """All lengths side by side by exact flow, and how far the read-out of the infinite prompt is
    from the Bayes predictor w·x_q.
    """
    chosen, (factors, layer), lengths = (
        task(config, setting),
        start(config, kind),
        [*config.lengths, math.inf],
    )
    options: dict[str, Any] = {"parametrisation": factors, "tolerance": config.tolerance}
    # dense where SGD is laid over
    ends = (config.until, min(config.until, config.learning_rate * config.sgd_steps))
    options |= {
        "times": np.unique([np.linspace(0, end, config.times) for end in ends]),
        "progress": lambda time: progress(f"time {time:.3g} of {config.until:g}"),
    }
    flow = gradient_flow(chosen, layer, lengths, config.until, **options).completed()
    limit_risk = torch.stack(
        [chosen.limit_risk(*factors.layer(theta)) for theta in flow.parameters]
    )
    distance = (2 * limit_risk - chosen.noise_variance).clamp_min(0.0).sqrt().numpy()
    return (
        flow.to_xarray()[["risk", "gradient_norm"]]
        .assign(distance=(("length", "time"), distance))
        .assign(bayes_risk=("length", [chosen.bayes_risk(length) for length in lengths]))
        .drop_attrs()
    )


def sgd(config: PaperConfig, kind: str, length: int, seed: int, progress: Progress) -> xr.Dataset:
    """One SGD run as the authors ran it, in the intended setting."""
    (factors, layer), steps = (
        start(config, kind),
        (config.learning_rate, config.sgd_steps, config.batch_size),
    )
    generator = torch.Generator().manual_seed(10_000 * seed + 2 * length + (kind == "softmax"))
    options: dict[str, Any] = {"parametrisation": factors, "record": 41}
    options["progress"] = lambda step: progress(f"step {step:,}") if step % 100 == 0 else None
    run = stochastic_gradient_descent(
        task(config, "intended"), layer, length, *steps, generator, **options
    ).completed()
    return xr.Dataset(
        {"sgd_risk": ("sgd_time", run.risk.numpy())}, coords={"sgd_time": run.times.numpy()}
    )
