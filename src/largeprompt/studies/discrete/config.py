"""The problem that the parts of the study `discrete` share, and its settings."""

from __future__ import annotations

import dataclasses
import math

import torch

from largeprompt.attention import Attention
from largeprompt.studies.covariances import KINDS, F, block_start, covariance, largest_alpha
from largeprompt.studies.paper.study import TRAINED
from largeprompt.training import LinearRegression


@dataclasses.dataclass(frozen=True)
class DiscreteConfig:
    """In-context regression in d = 2 from the theorem's balanced start; the authors' experiment beside it.

    Batches are given as (step size, batch size, runs). ``paper_steps`` counts the steps of the authors' SGD that are run;
    its law is computed to the end of their training.
    """

    dim: int = 2
    covariance: str = "toeplitz"
    noise_variance: float = 0.1
    lengths: tuple[float, ...] = (30, 1000, math.inf)
    until: float = 20.0
    step_sizes: tuple[float, ...] = (0.4, 0.2, 0.1, 0.05, 0.025, 0.0125, 0.00625)
    modified_step_sizes: tuple[float, ...] = (0.2, 0.1, 0.05, 0.025)
    times: int = 201
    points: int = 256
    settled: float = 4000.0
    sections: int = 16
    rounds: int = 3
    large_steps: int = 17
    large_until: float = 1000.0
    sgd_until: float = 10.0
    sgd_length: int = 30
    sgd_times: int = 41
    batches: tuple[tuple[float, int, int], ...] = (
        (0.05, 8, 320),
        (0.05, 32, 256),
        (0.05, 128, 128),
        (0.05, 512, 32),
        (0.2, 32, 256),
        (0.1, 32, 256),
        (0.025, 32, 256),
        (0.0125, 32, 128),
    )
    wander_until: float = 20.0
    wander_cases: tuple[str, ...] = ("softmax 30", "linear 30")
    wander_batch: tuple[float, int, int] = (0.04, 64, 128)
    noise_prompts: int = 2**16
    sgd_points: int = 2**14
    adam_lengths: tuple[float, ...] = (1000, math.inf)
    adam_until: float = 2.0
    adam_step_sizes: tuple[float, ...] = (1e-2, 5e-3, 2.5e-3, 1e-3, 5e-4)
    sign_until: float = 0.05
    sign_step_sizes: tuple[float, ...] = (1.6e-5, 8e-6, 4e-6)
    arrival_lengths: tuple[float, ...] = (30, 1000)
    arrival_step_size: float = 1e-2
    arrival_steps: int = 2500
    paper_length: int = 20
    paper_until: float = TRAINED
    paper_steps: int = 1250
    paper_runs: int = 40
    paper_prompts: int = 2**14
    paper_times: int = 31
    paper_records: int = 11
    paper_points: int = 4096
    seed: int = 0


def regression(config: DiscreteConfig) -> LinearRegression:
    """w ~ N(0, I/d)."""
    sigma = covariance(config.covariance, config.dim)
    return LinearRegression(sigma, torch.eye(config.dim, dtype=F) / config.dim, config.noise_variance)


def first_layer(config: DiscreteConfig, kind: str = "softmax") -> Attention:
    """The theorem's balanced start, at nine tenths of its bound on alpha."""
    alpha = 0.9 * largest_alpha(covariance(config.covariance, config.dim))
    return KINDS[kind](*block_start(config.dim, alpha, alpha))
