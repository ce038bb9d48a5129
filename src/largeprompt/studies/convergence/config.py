"""Settings of the study, and the covariances of the tokens by name."""

import math
from typing import Annotated, Literal, Self, get_args

import numpy as np
import pydantic
from numpy.typing import NDArray
from pydantic import Field

from largeprompt.runs.settings import (
    Dimension,
    Distinct,
    Few,
    Increasing,
    Length,
    NonNegative,
    Number,
    Positive,
    Replicas,
    Seed,
    SomeFew,
    TwoOrMore,
    settings,
)
from largeprompt.studies.ranges import Longest, Window, length_grid, window

Array = NDArray[np.float64]
Condition = Annotated[float, Field(ge=1, allow_inf_nan=False)]


def condition(number: float, dim: int) -> Array:
    """Eigenvalues of sum d, largest first, their logarithms evenly spread."""
    return of_trace(np.logspace(0, -math.log10(number), dim, dtype=np.float64))


def of_trace(values: Array) -> Array:
    """Eigenvalues scaled to the sum d."""
    return np.asarray(values * len(values) / values.sum())


Spectrum = Literal[
    "condition 1",
    "condition 10",
    "condition 100",
    "condition 10000",
    "power law 1",
    "power law 2",
    "spike 0.5",
]


def spectrum(name: Spectrum, dim: int) -> Array:
    """Eigenvalues of sum d, largest first, of the spectrum of that name."""
    kind, number = name.rsplit(" ", 1)
    if kind == "condition":
        return condition(float(number), dim)
    if kind == "power law":
        return of_trace(np.arange(1, dim + 1, dtype=np.float64) ** -float(number))
    share = float(number)  # of the trace, in the first
    return of_trace(np.append(share, np.full(dim - 1, (1 - share) / (dim - 1))))


@settings
class ConvergenceConfig:
    """One query for each score variance, V = I; other settings of each part have its name.

    Tokens of ``law`` in R^dim; Gaussian ones of several spectra, in several dimensions, and with
    ill-conditioned inputs of a regression; scalar ones for the sharpness of certificates.
    """

    # law of the tokens in the error curves
    law: Literal["gaussian", "rademacher", "uniform", "sphere"] = "gaussian"
    dim: Dimension = 4
    score_variances: Increasing[Positive] = (0.5, 2.0, 6.0)
    longest: Longest = 1e8
    points: SomeFew = 81
    # lengths of drawn prompts
    drawn_lengths: Increasing[Length] = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)
    replicas: Replicas = 1000
    derivative_lengths: Increasing[Length] = (10, 30, 100)  # at which many prompts are drawn
    fitted: Window = (10, 10_000)
    # eigenvalues of the covariance, of one trace
    spectra: Distinct[Spectrum] = get_args(Spectrum)
    spectrum_dim: Annotated[Dimension, Field(ge=2)] = 20  # their number
    spectrum_longest: Longest = 1e12  # longest prompt of the spectra
    spectrum_points: SomeFew = 97  # lengths of their curves
    # lengths of drawn prompts of the spectra
    spectrum_drawn_lengths: Increasing[Length] = (10, 100, 300)
    short_dims: Distinct[Dimension] = (1, 4, 16, 64)  # dimensions of isotropic tokens
    short_variances: Increasing[Positive] = (0.1, 0.5, 1.0, 2.0, 4.0)  # their score variances
    # longest prompt of isotropic tokens and of regression
    short_longest: Annotated[Number, Field(ge=30, le=1e15)] = 1e9
    short_per_decade: Few = 20  # lengths in a decade beyond 30
    regression_dim: Dimension = 5  # dimension of the inputs
    regression_noise: NonNegative = 0.1  # variance of the noise in the answers
    # condition numbers of the inputs
    regression_conditions: Increasing[Condition] = (1.0, 1e2, 1e4)
    regression_per_decade: Few = 5  # lengths in a decade beyond 30, of regression
    sharpness_variances: Increasing[Positive] = (0.2, 0.8, 2.0, 4.0)  # of scalar Gaussian tokens
    sharpness_tilts: Increasing[Positive] = (0.3, 1.0, 1.7, 2.5)  # of two clusters
    sharpness_points: SomeFew = 41  # lengths in units of ρ
    regime_variances: TwoOrMore = 121  # points of the plane of regimes
    regime_lengths: TwoOrMore = 81  # likewise
    # length at which scores are not scaled
    reference_length: Annotated[Length, Field(ge=100)] = 8192
    seed: Seed = 0

    @pydantic.model_validator(mode="after")
    def _lengths_are_fitted(self) -> Self:
        window(self.fitted, length_grid(self.longest, self.points))
        window(self.fitted, length_grid(self.spectrum_longest, self.spectrum_points))
        return self

    def short_lengths(self, per_decade: int) -> list[int]:
        """1 to 30 one by one, then evenly in the logarithm."""
        decades = math.log10(self.short_longest / 30)
        far = 30 * 10 ** (np.arange(1, round(per_decade * decades) + 1) / per_decade)
        return sorted({*range(1, 31), *(round(each) for each in far)})
