"""Settings of the study, and the covariances of the tokens by name."""

import math
from collections.abc import Callable
from functools import partial
from typing import Annotated, Literal, Self

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


def power_law(power: float, dim: int) -> Array:
    """Eigenvalues of sum d that fall like i^-p."""
    return of_trace(np.arange(1, dim + 1, dtype=np.float64) ** -power)


def spike(share: float, dim: int) -> Array:
    """Eigenvalues of sum d: the first has a share of the trace, the others are equal."""
    return of_trace(np.append(share, np.full(dim - 1, (1 - share) / (dim - 1))))


SPECTRA: dict[str, Callable[[int], Array]] = {
    "condition 1": partial(condition, 1.0),
    "condition 10": partial(condition, 1e1),
    "condition 100": partial(condition, 1e2),
    "condition 10000": partial(condition, 1e4),
    "power law 1": partial(power_law, 1),
    "power law 2": partial(power_law, 2),
    "spike 0.5": partial(spike, 0.5),
}


@settings
class ConvergenceConfig:
    """One query for each score variance, V = I; other settings of each part have its name.

    Tokens of ``law`` in R^dim; Gaussian ones of several spectra, in several dimensions, and with
    ill-conditioned inputs of a regression; scalar ones for the sharpness of certificates.
    """

    law: Literal["gaussian", "rademacher", "uniform", "sphere"] = "gaussian"
    dim: Dimension = 4
    score_variances: Increasing[Positive] = (0.5, 2.0, 6.0)
    longest: Longest = 1e8
    points: SomeFew = 81
    drawn_lengths: Increasing[Length] = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)
    replicas: Replicas = 1000
    derivative_lengths: Increasing[Length] = (10, 30, 100)  # at which many prompts are drawn
    fitted: Window = (10, 10_000)
    spectra: Distinct[
        Literal[
            "condition 1",
            "condition 10",
            "condition 100",
            "condition 10000",
            "power law 1",
            "power law 2",
            "spike 0.5",
        ]
    ] = (
        "condition 1",
        "condition 10",
        "condition 100",
        "condition 10000",
        "power law 1",
        "power law 2",
        "spike 0.5",
    )
    spectrum_dim: Annotated[Dimension, Field(ge=2)] = 20
    spectrum_longest: Longest = 1e12
    spectrum_points: SomeFew = 97
    spectrum_drawn_lengths: Increasing[Length] = (10, 100, 300)
    short_dims: Distinct[Dimension] = (1, 4, 16, 64)
    short_variances: Increasing[Positive] = (0.1, 0.5, 1.0, 2.0, 4.0)
    short_longest: Annotated[Number, Field(ge=30, le=1e15)] = 1e9
    short_per_decade: Few = 20
    regression_dim: Dimension = 5
    regression_noise: NonNegative = 0.1
    regression_conditions: Increasing[Condition] = (1.0, 1e2, 1e4)
    regression_per_decade: Few = 5
    sharpness_variances: Increasing[Positive] = (0.2, 0.8, 2.0, 4.0)
    sharpness_tilts: Increasing[Positive] = (0.3, 1.0, 1.7, 2.5)
    sharpness_points: SomeFew = 41
    regime_variances: TwoOrMore = 121
    regime_lengths: TwoOrMore = 81
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
