"""E1 in outline: how far is attention over a finite prompt from its infinite-prompt limit, for three laws of tokens?"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable

import numpy as np
import torch
import xarray as xr

from largeprompt.attention import SoftmaxAttention, affine_limit
from largeprompt.law import finite_prompt
from largeprompt.measures import Empirical, Gaussian, GaussianMixture, Measure, Rademacher


def _standard_gaussian(dim: int) -> Measure:
    return Gaussian(torch.zeros(dim, dtype=torch.float64), torch.eye(dim, dtype=torch.float64))


def _two_clusters(dim: int) -> Measure:
    """Two Gaussian clusters on either side of the origin along (1, ..., 1), identity covariance in all."""
    half = torch.full((dim,), 0.9 / math.sqrt(dim), dtype=torch.float64)
    within = torch.eye(dim, dtype=torch.float64) - half.unsqueeze(-1) * half
    return GaussianMixture(torch.tensor([0.5, 0.5], dtype=torch.float64), torch.stack([half, -half]), within.expand(2, dim, dim))


LAWS: dict[str, Callable[[int], Measure]] = {
    "Gaussian": _standard_gaussian,
    "Rademacher": Rademacher,
    "two clusters": _two_clusters,
}
BLOCK_TOKENS = 100_000  # drawn at a time: small enough to stay in the cache


def _blocks(total: int, size: int) -> list[int]:
    """Sizes of the blocks that ``total`` splits into."""
    return [min(size, total - start) for start in range(0, total, size)]


@dataclasses.dataclass(frozen=True)
class ConvergenceConfig:
    """What the study varies: prompt lengths, and how many prompts are drawn at each."""

    dim: int = 4
    score_variance: float = 1.5
    lengths: tuple[int, ...] = (10, 30, 100, 300, 1000, 3000, 10_000, 30_000)
    tokens_per_length: int = 12_000_000
    seed: int = 0


def run(config: ConvergenceConfig, progress: Callable[[str], None] = lambda message: None) -> xr.Dataset:
    """Draw prompts of every length from every law and measure the distance of attention to its limit and to the affine read-out.

    One query z = (s, ..., s) with U = V = I, so that the score variance is ‖z‖² for every law (all have unit covariance).
    """
    size = math.sqrt(config.score_variance / config.dim)
    z = torch.full((config.dim,), size, dtype=torch.float64)
    eye = torch.eye(config.dim, dtype=torch.float64)
    attention = SoftmaxAttention(eye, eye)
    shape = (len(LAWS), len(config.lengths))
    mse, error, affine_mse, predicted = (np.full(shape, np.nan) for _ in range(4))
    gap = np.full(len(LAWS), np.nan)
    for i, (name, make) in enumerate(LAWS.items()):
        progress(f"convergence: {name} tokens")
        mu = make(config.dim)
        limit = attention(mu, z)
        matrix, offset = affine_limit(attention, mu)
        affine = matrix @ z + offset
        gap[i] = float((limit - affine).norm())
        generator = torch.Generator().manual_seed(config.seed * 1000 + i)
        for j, length in enumerate(config.lengths):
            replicas = max(100, config.tokens_per_length // length)
            output = torch.cat(
                [
                    attention(Empirical(mu.sample(count * length, generator).reshape(count, length, config.dim)), z)
                    for count in _blocks(replicas, max(1, BLOCK_TOKENS // length))
                ]
            )  # (replicas, d)
            squared = (output - limit).square().sum(-1)
            mse[i, j], error[i, j] = float(squared.mean()), float(squared.std() / math.sqrt(replicas))
            affine_mse[i, j] = float((output - affine).square().sum(-1).mean())
        predicted[i] = finite_prompt(attention, mu, z, config.lengths, expansion=True).mse.numpy()
    grid = ("law", "length")
    return xr.Dataset(
        {
            "mse": (grid, mse, {"long_name": "mean squared distance to the limit, E|T_L - T|^2"}),
            "mse_standard_error": (grid, error),
            "affine_mse": (grid, affine_mse, {"long_name": "mean squared distance to the affine read-out"}),
            "first_order_mse": (grid, predicted, {"long_name": "leading order in 1/L, predicted"}),
            "gap": ("law", gap, {"long_name": "distance between limit and affine read-out, predicted"}),
        },
        coords={"law": list(LAWS), "length": list(config.lengths)},
        attrs={"study": "convergence", "config": json.dumps(dataclasses.asdict(config))},
    )
