"""C3 at fixed score variance: exact error of a finite prompt, certificate, samples, first order, and the paper's form fitted."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray

from largeprompt.attention import SoftmaxAttention
from largeprompt.certificate import certificate
from largeprompt.law import finite_prompt
from largeprompt.measures import Gaussian
from largeprompt.sampling import sample_prompts


@dataclasses.dataclass(frozen=True)
class FiniteErrorConfig:
    """Isotropic Gaussian tokens in R^d, V = I, one query for each score variance."""

    dim: int = 4
    score_variances: tuple[float, ...] = (0.5, 2.0, 6.0)
    longest: float = 1e8
    points: int = 81
    sampled_lengths: tuple[int, ...] = (3, 10, 30, 100, 300, 1000, 3000, 10_000)
    replicas: int = 2000
    fitted: tuple[int, int] = (10, 10_000)
    seed: int = 0


def fit_paper_form(length: NDArray[np.float64], mse: NDArray[np.float64], score_variance: float) -> tuple[float, float]:
    """Best c1, c2 in mse ≈ c1 σ⁶ ln(L)/L^{c2/σ²}, by least squares in logarithms."""
    slope, intercept = np.polyfit(np.log(length), np.log(mse) - np.log(np.log(length)), 1)
    return math.exp(intercept) / score_variance**3, -slope * score_variance


def run(config: FiniteErrorConfig, progress: Callable[[str], None] = lambda message: None) -> xr.Dataset:
    """Compute every curve before anything is drawn, then draw prompts over them."""
    eye = torch.eye(config.dim, dtype=torch.float64)
    attention, mu = SoftmaxAttention(eye, eye), Gaussian(torch.zeros(config.dim, dtype=torch.float64), eye)
    lengths = np.unique(np.round(np.logspace(0, math.log10(config.longest), config.points)).astype(np.int64))
    queries = torch.zeros(len(config.score_variances), config.dim, dtype=torch.float64)
    queries[:, 0] = torch.tensor(config.score_variances, dtype=torch.float64).sqrt()
    progress("finite_error: exact law and certificate")
    every = [int(length) for length in lengths]
    exact = finite_prompt(attention, mu, queries, every)
    rough = finite_prompt(attention, mu, queries, every, expansion=True)
    proved = certificate(attention, mu, queries, every)
    progress("finite_error: drawing prompts")
    generator = torch.Generator().manual_seed(config.seed)
    drawn = sample_prompts(attention, mu, queries, config.sampled_lengths, config.replicas, generator, reduced=True)
    sampled, error = drawn.mse(exact.limit)
    window = (lengths >= config.fitted[0]) & (lengths <= config.fitted[1])
    mse = exact.mse.numpy()
    constants = [fit_paper_form(lengths[window].astype(float), mse[window, i], q) for i, q in enumerate(config.score_variances)]
    with np.errstate(divide="ignore"):
        paper = np.stack(
            [
                c1 * q**3 * np.log(lengths) / lengths ** (c2 / q)
                for (c1, c2), q in zip(constants, config.score_variances, strict=True)
            ],
            1,
        )
    grid = ("length", "score_variance")
    return xr.Dataset(
        {
            "exact": (grid, mse, {"long_name": "E|T_L - T|^2, exact"}),
            "certified": (grid, proved.bound.numpy(), {"long_name": "proved upper bound"}),
            "first_order": (grid, rough.mse.numpy(), {"long_name": "leading order in 1/L"}),
            "paper_form": (grid, paper, {"long_name": "c1 sigma^6 ln(L)/L^(c2/sigma^2), fitted"}),
            "c1": ("score_variance", [c[0] for c in constants]),
            "c2": ("score_variance", [c[1] for c in constants]),
            "sampled": (("sampled_length", "score_variance"), sampled.numpy()),
            "sampled_standard_error": (("sampled_length", "score_variance"), error.numpy()),
            "jacobian_u": (
                grid,
                (exact.jacobian_u_mse / queries.square().sum(-1)).numpy(),
                {"long_name": "E|C_L - Gamma|^2, exact"},
            ),
        },
        coords={
            "length": lengths.astype(float),
            "score_variance": list(config.score_variances),
            "sampled_length": list(config.sampled_lengths),
        },
        attrs={"study": "finite_error", "config": json.dumps(dataclasses.asdict(config))},
    )
