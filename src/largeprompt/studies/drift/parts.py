"""The gradient flow of long prompts, followed far beyond the time at which it looks finished."""

import math

import numpy as np
import torch
import xarray as xr

from largeprompt.attention import SoftmaxAttention
from largeprompt.runs.settings import AnyLength, Dimension, Few, Positive, Some, settings
from largeprompt.runs.study import Progress
from largeprompt.studies.covariances import F, block_start
from largeprompt.training import LinearRegression, gradient_flow, isotropic_optimum


@settings
class DriftConfig:
    """Noiseless in-context regression with identity covariance, from the balanced start of the
    paper's Theorem 5.1.
    """

    dim: Dimension = 3
    alpha: Positive = 0.3
    lengths: Some[AnyLength] = (1e2, 1e3, 1e4, 1e5, math.inf)
    until: Positive = 3e5
    times: Few = 121


def flows(config: DriftConfig, progress: Progress) -> xr.Dataset:
    """All lengths side by side, the endpoint that the theorem predicts for the infinite prompt, and
    the optimum of each length.
    """
    d = config.dim
    task = LinearRegression(torch.eye(d, dtype=F), torch.eye(d, dtype=F), 0.0)
    optimal = [
        d**0.25 if math.isinf(length) else isotropic_optimum(task, length, start=(0.4, 2.4)).b
        for length in config.lengths
    ]
    flow = gradient_flow(
        task,
        SoftmaxAttention(*block_start(d, config.alpha, config.alpha)),
        list(config.lengths),
        config.until,
        parametrisation="block",
        tolerance=1e-6,
        times=np.logspace(-1, math.log10(config.until), config.times),
        progress=lambda time: progress(f"time {time:.3g}"),
    ).completed()
    data = flow.to_xarray()[["risk", "conserved"]].drop_attrs()
    data["b"] = flow.to_xarray().theta.sel(parameter="b").drop_vars("parameter")
    return data.assign(predicted_b=d**0.25, optimal_b=("length", optimal))
