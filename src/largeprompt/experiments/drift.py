"""Do L → ∞ and t → ∞ commute? The gradient flow of long prompts, followed far beyond the time at which it looks finished."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable

import numpy as np
import torch
import xarray as xr

from largeprompt.attention import SoftmaxAttention
from largeprompt.training import LinearRegression, gradient_flow


@dataclasses.dataclass(frozen=True)
class DriftConfig:
    """Noiseless in-context regression with identity covariance, from the balanced start of the paper's Theorem 5.1."""

    dim: int = 3
    alpha: float = 0.3
    lengths: tuple[float, ...] = (1e2, 1e3, 1e4, 1e5, math.inf)
    until: float = 3e5
    times: int = 121
    points: int = 4096


def run(config: DriftConfig, progress: Callable[[str], None] = lambda message: None) -> xr.Dataset:
    """All lengths side by side in one system, and the endpoint that the theorem predicts for the infinite prompt."""
    d = config.dim
    task = LinearRegression(torch.eye(d, dtype=torch.float64), torch.eye(d, dtype=torch.float64), 0.0)
    U, V = torch.zeros(d + 1, d + 1, dtype=torch.float64), torch.zeros(1, d + 1, dtype=torch.float64)
    U[:d, :d], V[0, d] = config.alpha * torch.eye(d, dtype=torch.float64) / math.sqrt(d), config.alpha
    flow = gradient_flow(
        task,
        SoftmaxAttention(U, V),
        list(config.lengths),
        config.until,
        parametrisation="block",
        points=config.points,
        tolerance=1e-6,
        times=np.logspace(-1, math.log10(config.until), config.times),
        progress=lambda time: progress(f"drift: time {time:.3g}"),
    )
    data = flow.dataset[["risk", "conserved"]]
    data["b"] = flow.dataset.theta.sel(parameter="b").drop_vars("parameter")
    data["predicted_b"] = d**0.25
    data.attrs |= {"study": "drift", "config": json.dumps(dataclasses.asdict(config))}
    return data
