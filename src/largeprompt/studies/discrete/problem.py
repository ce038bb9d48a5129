"""The regression problem that the parts of the study `discrete` share."""

from typing import Any

import torch
from torch import Tensor

from largeprompt.attention import Attention
from largeprompt.studies.covariances import KINDS, F, block_start, covariance, largest_alpha
from largeprompt.studies.discrete.config import DiscreteConfig
from largeprompt.training import LinearRegression


def problem(config: DiscreteConfig, kind: str = "softmax") -> tuple[LinearRegression, Attention]:
    """The task with w ~ N(0, I/d), the theorem's balanced start at nine tenths of its bound on
    alpha.
    """
    sigma = covariance(config.covariance, config.dim)
    task = LinearRegression(
        sigma, torch.eye(config.dim, dtype=F) / config.dim, config.noise_variance
    )
    alpha = 0.9 * largest_alpha(sigma)
    return task, KINDS[kind](*block_start(config.dim, alpha, alpha))


def path_at(flow: Any, times: Tensor, until: float) -> Tensor:
    """θ of a flow at the times of a run, whose last may pass the end by rounding."""
    return torch.stack([flow.theta(min(float(time), until)) for time in times])


def largest_distance(run: Any, flow: Any, until: float) -> float:
    """Supremum over the recorded times of the distance between a run and a flow."""
    return float((run.parameters - path_at(flow, run.times, until)).norm(dim=-1).max())
