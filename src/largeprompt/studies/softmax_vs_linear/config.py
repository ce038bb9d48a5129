"""Settings and tasks of the contest between softmax and linear attention."""

from __future__ import annotations

import dataclasses
import math

import torch

from largeprompt.errors import InvalidArgumentError
from largeprompt.studies.covariances import F, covariance
from largeprompt.training import LinearRegression
from largeprompt.training.optima.heads import HeadLattice

ALONE = "one head"
RATIOS = (1.0, 0.75, 0.5, 0.25)  # tilts of pairs relative to the largest, for four and eight heads
SMALL_TILT = 3e-3
VERY_SHORT = 3
SHORT = 10  # prompts up to this long may need steep tilts


@dataclasses.dataclass(frozen=True)
class SoftmaxVsLinearConfig:
    """In-context regression with tr WΣ = 1, so that s² is the ratio of noise to signal; then tasks that need more than moments."""

    dims: tuple[int, ...] = (1, 2, 3, 5, 10, 20)
    noises: tuple[float, ...] = (0.0, 0.1, 1.0, 10.0)
    lengths: tuple[float, ...] = (1, 2, 3, 4, 5, 7, 10, 20, 50, 100, 300, 1000, 10_000, 100_000, 1_000_000, 1_000_000_000)
    spectra: tuple[str, ...] = ("toeplitz", "condition 1e4", "queries near a line")
    spectrum_dim: int = 5
    spectrum_lengths: tuple[float, ...] = (10, 100, 1000, 10_000, 1_000_000_000)
    spectrum_noises: tuple[float, ...] = (0.0, 1.0)
    directions: int = 1024
    trained_spectra: tuple[str, ...] = ("identity", "toeplitz")
    trained_dim: int = 3
    trained_lengths: tuple[float, ...] = (10, 100, 1000, 10_000)
    trained_noise: float = 0.1
    until: float = 1e7
    points: int = 512
    starts: int = 4
    start_points: int = 1024
    start_until: float = 1000.0
    start_lengths: tuple[float, ...] = (5, 30)
    largest_scale: float = 6.5
    head_dims: tuple[int, ...] = (1, 2, 5)
    head_noises: tuple[float, ...] = (0.0, 1.0)
    pair_lengths: tuple[float, ...] = (2, 3, 4, 7, 20, 50, 300, 1000, 10_000, 1_000_000, 1_000_000_000)
    head_lengths: tuple[float, ...] = (5, 10, 30, 100)
    skew_length: int = 10
    skew_ratios: tuple[float, ...] = (-1.0, -0.75, -0.5, 0.0, 0.5)
    free_heads: tuple[int, ...] = (1, 2, 4, 8)
    free_dim: int = 2
    free_length: int = 10
    free_prompts: int = 16_384
    shift_variances: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
    shift_dims: tuple[int, ...] = (1, 5)
    shift_lengths: tuple[float, ...] = (3, 10, 30, 100, 1000, 10_000)
    spikes: tuple[float, ...] = (0.0, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0)
    location_lengths: tuple[float, ...] = (10, 100, 1000, 10_000, 1_000_000, 1_000_000_000)
    outlier_shares: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4, 0.6)
    outlier_lengths: tuple[float, ...] = (30, 100, 1000, 100_000)
    outlier_dim: int = 5
    replicas: int = 20_000
    seed: int = 0


def standard_task(dim: int, noise: float, spectrum: str = "identity") -> LinearRegression:
    """In-context regression with W a multiple of the identity and tr WΣ = 1."""
    if spectrum == "queries near a line":
        sigma = torch.eye(dim, dtype=F)
        query = torch.diag(torch.cat([torch.ones(1, dtype=F), torch.full((dim - 1,), 0.01, dtype=F)]))
        return LinearRegression(sigma, sigma / dim, noise, query)
    sigma = covariance(spectrum, dim)
    return LinearRegression(sigma, torch.eye(dim, dtype=F) / float(torch.trace(sigma)), noise)


def relative_excess(task: LinearRegression, risk: float) -> float:
    """What is lost of E t²: (2R - s²)/tr WΣ_q, 0 for an infinite prompt and 1 for reading nothing."""
    assert isinstance(task.query_covariance, torch.Tensor)  # made one by the task
    return (2 * risk - task.noise_variance) / float(torch.trace(task.prior_covariance @ task.query_covariance))


def one_head(length: float) -> HeadLattice:
    """Moments of one head, for tilts as large as its length may need."""
    return HeadLattice.of(length, (1.0,), largest=40.0 if length <= SHORT else 12.0)


def check_config(config: SoftmaxVsLinearConfig) -> None:
    """Refuse settings that the cells could not use."""
    if max(config.head_dims) > 20 or max(config.dims) > 20:
        given = str(max(*config.head_dims, *config.dims))
        raise InvalidArgumentError("dims", given, "at most 20, up to where the lattice of score scales is accurate to 1e-6")
    if min((*config.pair_lengths, *config.head_lengths)) < 2 or any(math.isinf(length) for length in config.lengths):
        raise InvalidArgumentError("lengths", "1 or infinity for pairs of heads", "finite lengths, from 2 on for pairs")
