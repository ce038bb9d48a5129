"""Exact errors, proved bounds and drawn prompts at each score variance, and the paper's constants
fitted to the exact errors.
"""

import math
from typing import Self

import numpy as np
import pydantic
import torch
import xarray as xr

from largeprompt.attention import SoftmaxAttention
from largeprompt.certificates import certificate, jacobian_certificate
from largeprompt.law import FinitePromptLaw, finite_prompt, regime
from largeprompt.measures import Gaussian
from largeprompt.runs.settings import (
    Count,
    Dimension,
    Distinct,
    Increasing,
    Length,
    Positive,
    Replicas,
    Seed,
    SomeFew,
    settings,
)
from largeprompt.runs.study import Progress
from largeprompt.sampling import sample_prompts
from largeprompt.studies.convergence.formulas import LOGS, Array, fit_paper_form
from largeprompt.studies.ranges import Longest, Window, length_grid, window


@settings
class ConvergenceConfig:
    """Isotropic Gaussian tokens in R^d, V = I, one query for each score variance."""

    dim: Dimension = 4
    score_variances: Distinct[Positive] = (0.5, 2.0, 6.0)
    longest: Longest = 1e8
    points: SomeFew = 81
    sampled_lengths: Increasing[Length] = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)
    replicas: Replicas = 1000
    fitted: Window = (10, 10_000)
    bootstraps: Count = 1000
    seed: Seed = 0

    @pydantic.model_validator(mode="after")
    def _fitted_lengths_are_sampled(self) -> Self:
        window(self.fitted, self.sampled_lengths)
        return self


def errors(config: ConvergenceConfig, q: float, progress: Progress) -> xr.Dataset:
    """One score variance: every curve is computed before anything is drawn; then prompts are drawn
    over them.
    """
    index, d = config.score_variances.index(q), config.dim
    eye = torch.eye(d, dtype=torch.float64)
    attention, mu = SoftmaxAttention(eye, eye), Gaussian(torch.zeros(d, dtype=torch.float64), eye)
    z, every = math.sqrt(q) * eye[0], length_grid(config.longest, config.points).tolist()
    progress("exact law and certificates")
    exact, at = (
        finite_prompt(attention, mu, z, every),
        finite_prompt(attention, mu, z, config.sampled_lengths),
    )
    proved = jacobian_certificate(attention, mu, z, every)
    assert proved.jacobian_v_bound is not None  # a certificate of derivatives has both
    bounds = torch.stack(
        [certificate(attention, mu, z, every).bound, proved.bound, proved.jacobian_v_bound]
    ).numpy()
    rough = finite_prompt(attention, mu, z, every, expansion=True)
    exact_at = _mean_squares(at)
    progress("drawing prompts")
    generator = torch.Generator().manual_seed(1000 * config.seed + index)
    drawn = sample_prompts(
        attention, mu, z, config.sampled_lengths, config.replicas, generator, jacobian=True
    )
    assert drawn.readout_jacobian is not None  # asked for in the line above
    output = (drawn.outputs - exact.limit).square().sum(-1)  # (length, replica)
    # dT/dU = C_L ⊗ z, ‖z‖² = σ²
    derivative = q * (drawn.readout_jacobian - eye).square().sum((-2, -1))
    # dT/dV repeats the read-out in each of d rows
    squared = torch.stack([output, derivative, d * output]).numpy()
    grid, points = ("quantity", "length"), ("quantity", "sampled_length")
    data = xr.Dataset(
        {
            "exact": (grid, _mean_squares(exact)),
            "certified": (grid, bounds),
            "first_order": ("length", rough.mse.numpy()),
            "exact_at_samples": (points, exact_at),
            "sampled": (points, squared.mean(-1)),
            "sampled_standard_error": (
                points,
                squared.std(-1, ddof=1) / math.sqrt(config.replicas),
            ),
            "frozen": ("length", [regime(q, length) == "frozen" for length in every]),
        },
        coords={
            "quantity": list(LOGS),
            "length": np.asarray(every, float),
            "sampled_length": list(config.sampled_lengths),
        },
    )
    return data.merge(_fits(config, q, exact_at, squared, index))


def _mean_squares(law: FinitePromptLaw) -> Array:
    """Mean squared errors in the order of LOGS: output, derivative in U, derivative in V."""
    return np.asarray(torch.stack([law.mse, law.jacobian_u_mse, law.jacobian_v_mse]).numpy())


def _fits(
    config: ConvergenceConfig, q: float, exact: Array, squared: Array, index: int
) -> xr.Dataset:
    """c1, c2 and the plain slope of the exact errors (quantity, length), and 95 % intervals of
    those of the drawn ones.

    Lengths share their tokens, so that resampling streams, not points, gives the right spread;
    squared (quantity, length, replica).
    """
    inside, count = window(config.fitted, config.sampled_lengths), squared.shape[-1]
    lengths = np.asarray(config.sampled_lengths, dtype=np.float64)[inside]
    random = np.random.default_rng([config.seed, index])
    # (replica, bootstrap)
    shares = random.multinomial(count, np.full(count, 1 / count), size=config.bootstraps).T / count
    fits = []  # (quantity, constant, exact and bootstraps)
    for known, values, logs in zip(exact, squared, LOGS.values(), strict=True):
        means = np.column_stack([known, values @ shares])[inside]
        fits.append(
            [
                *fit_paper_form(lengths, means, q, logs),
                np.polyfit(np.log(lengths), np.log(means), 1)[0],
            ]
        )
    found = np.asarray(fits)
    rows = np.stack([found[..., 0], *np.quantile(found[..., 1:], [0.025, 0.975], axis=-1)], -1)
    return xr.Dataset(
        {
            name: (("quantity", "interval"), rows[:, i])
            for i, name in enumerate(("c1", "c2", "slope"))
        },
        coords={"interval": ["exact", "lower", "upper"], "quantity": list(LOGS)},
    )
