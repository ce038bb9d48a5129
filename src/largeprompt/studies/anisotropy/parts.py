"""Exact errors of several spectra along weak, strong and mixed directions, with samples; and
averages over random queries.
"""

import math
from typing import Annotated, Self

import numpy as np
import pydantic
import torch
import xarray as xr
from pydantic import Field

from largeprompt.attention import SoftmaxAttention
from largeprompt.law import finite_prompt
from largeprompt.law.table import WeightTables
from largeprompt.measures import Gaussian
from largeprompt.runs.settings import (
    Dimension,
    Distinct,
    Increasing,
    Length,
    Positive,
    Replicas,
    Seed,
    SomeFew,
    Two,
    settings,
)
from largeprompt.runs.study import Progress
from largeprompt.sampling import sample_prompts
from largeprompt.studies.anisotropy.formulas import (
    DIRECTIONS,
    TOLERANCE,
    Array,
    eigenvalues,
    parsed,
    spectrum,
)
from largeprompt.studies.convergence.formulas import fit_paper_form
from largeprompt.studies.lengths import sharp_exponent
from largeprompt.studies.ranges import Decade, Longest, Window, length_grid, window

F = torch.float64


@settings
class AnisotropyConfig:
    """Spectra of Γ with trace d, V = I; queries of given score variance along eigenvectors and
    along one random direction.
    """

    dim: Annotated[Dimension, Field(ge=2)] = 20
    spectra: Distinct[
        Annotated[str, pydantic.AfterValidator(lambda name: parsed(name) and name)]
    ] = (
        "condition 1",
        "condition 1e1",
        "condition 1e2",
        "condition 1e4",
        "power law 1",
        "power law 2",
        "spike 0.5",
    )
    score_variances: Increasing[Positive] = (0.5, 2.0, 6.0)
    longest: Longest = 1e12
    points: SomeFew = 97
    fitted: Window = (10, 10_000)
    sampled_score_variance: Positive = 2.0
    sampled_lengths: Increasing[Length] = (10, 100, 300)
    replicas: Replicas = 1000
    spikes: Increasing[Annotated[float, Field(gt=0, lt=1)]] = (0.05, 0.25, 0.5, 0.75, 0.95)
    mean_score_variance: Positive = 2.0
    decades: Annotated[Increasing[Decade], Two] = (2, 4, 6, 8, 10, 12, 13, 14)
    seed: Seed = 0

    @pydantic.model_validator(mode="after")
    def _lengths_are_fitted(self) -> Self:
        window(self.fitted, length_grid(self.longest, self.points))
        return self


def spectrum_errors(config: AnisotropyConfig, name: str, progress: Progress) -> xr.Dataset:
    """Exact errors of one spectrum, the constants fitted to them, the length needed, and samples
    over them.
    """
    d = config.dim
    values = torch.from_numpy(eigenvalues(name, d))
    eye = torch.eye(d, dtype=F)
    attention, mu = (
        SoftmaxAttention(eye, eye),
        Gaussian(torch.zeros(d, dtype=F), torch.diag(values)),
    )
    mixed = torch.randn(d, generator=torch.Generator().manual_seed(config.seed), dtype=F)
    ways = torch.stack([eye[-1], eye[0], mixed])
    ways = ways / (ways.square() @ values).sqrt().unsqueeze(-1)  # score variance 1
    # (direction, score variance, d)
    z = ways.unsqueeze(1) * torch.tensor(config.score_variances, dtype=F).sqrt().unsqueeze(-1)
    lengths = length_grid(config.longest, config.points)
    inside = window(config.fitted, lengths)
    exact = finite_prompt(attention, mu, z, lengths.tolist())
    mse = exact.mse.permute(1, 2, 0).numpy()
    size = exact.limit.square().sum(-1).numpy()  # ‖Γu‖²
    c1, c2 = (np.empty(size.shape) for _ in range(2))
    for j, q in enumerate(config.score_variances):
        c1[:, j], c2[:, j] = fit_paper_form(lengths[inside], mse[:, j, inside].T, q)
    query = ways * math.sqrt(config.sampled_score_variance)
    generator = torch.Generator().manual_seed(1000 * config.seed + config.spectra.index(name))
    at = finite_prompt(attention, mu, query, config.sampled_lengths)
    drawn, error = sample_prompts(
        attention, mu, query, config.sampled_lengths, config.replicas, generator
    ).mse(at.limit)
    grid, points = ("direction", "score_variance"), ("sampled_length", "direction")
    return xr.Dataset(
        {
            "exact": ((*grid, "length"), mse),
            "size": (grid, size),
            "trace": float(values.sum()),
            "condition": float(values.max() / values.min()),
            "effective_rank": float(values.sum() / values.max()),
            "c1": (grid, c1),
            "c2": (grid, c2),
            "needed_length": (grid, _needed(lengths.astype(np.float64), mse / size[..., None])),
            "sampled": (points, drawn.numpy()),
            "sampled_standard_error": (points, error.numpy()),
            "exact_at_samples": (points, at.mse.numpy()),
        },
        coords={
            "direction": list(DIRECTIONS),
            "score_variance": list(config.score_variances),
            "length": lengths.astype(float),
            "sampled_length": list(config.sampled_lengths),
        },
    )


def _needed(lengths: Array, relative: Array) -> Array:
    """Length at which the relative mean squared error falls to TOLERANCE², log-log interpolated;
    NaN beyond the range.
    """
    goal, x = -2 * math.log(TOLERANCE), np.log(lengths)
    return np.exp(
        np.apply_along_axis(
            lambda row: np.interp(goal, -row, x, left=np.nan, right=np.nan), -1, np.log(relative)
        )
    )


def spiked_average(
    share: float,
    dim: int,
    mean_score_variance: float,
    lengths: tuple[float, ...],
    step: float = 0.1,
) -> Array:
    """E‖T_L - T‖² averaged over z ~ N(0, s²I), for a spiked spectrum of trace d, s² = mean score
    variance/d.

    The score variance is s²(λ1 ξ² + λ2 r²), ξ standard normal and r chi-distributed with d - 1
    degrees of freedom: a sum over a grid of (ξ, r), exact to many digits.
    """
    first, rest = spectrum("spike", share, dim)[:2]
    scale = mean_score_variance / dim
    xi = np.arange(0.0, 10.0, step)
    r = np.arange(step / 2, math.sqrt(dim) + 9.0, step)
    density = np.exp(-(xi**2) / 2)
    density[0] /= 2  # the end point of the even integrand
    log_radial = (dim - 2) * np.log(r) - r**2 / 2
    weight = np.multiply.outer(density, np.exp(log_radial - log_radial.max()))
    weight /= weight.sum()
    kept = weight > 1e-40
    q = scale * (first * xi[:, None] ** 2 + rest * r**2)[kept]
    size = scale * (first**2 * xi[:, None] ** 2 + rest**2 * r**2)[kept]
    points = torch.from_numpy(q).expand(len(lengths), -1)
    f, h = (part.numpy() for part in WeightTables.reaching(lengths, float(q.max()))(points))
    return np.asarray((f * dim + (f - 6 * h) * size) @ weight[kept])


def random_queries(config: AnisotropyConfig, progress: Progress) -> xr.Dataset:
    """Query-averaged errors of spiked spectra with the same mean score variance, and their local
    exponents.
    """
    lengths = tuple(10.0**k for k in config.decades)
    mse = np.stack(
        [
            spiked_average(share, config.dim, config.mean_score_variance, lengths)
            for share in config.spikes
        ]
    )
    exponent = -np.diff(np.log10(mse), axis=-1) / np.diff(config.decades)
    square = config.mean_score_variance * np.asarray(config.spikes)  # H² = s² λ_max
    return xr.Dataset(
        {
            "random_mse": (("spike", "decade"), mse),
            "random_exponent": (("spike", "decade_end"), exponent),
            "random_square": ("spike", square),
            "random_sharp": ("spike", sharp_exponent(square)),
            "mean_score_variance": config.mean_score_variance,
        },
        coords={
            "spike": list(config.spikes),
            "decade": list(config.decades),
            "decade_end": list(config.decades[1:]),
        },
    )
