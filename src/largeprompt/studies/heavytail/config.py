"""Settings of the study `heavytail`."""

import math
from typing import Annotated

import pydantic
from pydantic import Field

from largeprompt.runs.settings import (
    Count,
    Distinct,
    Few,
    Increasing,
    Length,
    Positive,
    Replicas,
    Seed,
    SomeFew,
    settings,
)

Freedom = Annotated[float, Field(gt=0)]  # math.inf is the Gaussian law
Tilt = Annotated[float, Field(allow_inf_nan=False)]


@settings
class HeavyTailConfig:
    """Scalar tokens; training on regression with one scalar input."""

    dfs: Distinct[Freedom] = (
        math.inf,
        60.0,
        30.0,
        20.0,
        12.0,
        10.0,
        8.0,
        6.0,
        5.0,
        4.0,
        3.0,
        2.5,
        2.0,
        1.5,
        1.0,
    )
    tilts: Distinct[Positive] = (0.5, 1.0, 2.0)
    laplace_tilts: Distinct[Positive] = (0.5, 0.9, 1.1, 1.3, 1.8, 2.5)
    lognormal_scale: Positive = 0.5
    lognormal_tilts: Distinct[Tilt] = (-1.0, 0.5, 1.0)
    lengths: Increasing[Length] = (10, 30, 100, 300, 1000, 3000, 10_000, 30_000)
    tokens: Count = 4_000_000  # drawn for each law and length
    most_replicas: Count = 5000
    decades: Annotated[int, Field(ge=2, le=15)] = 12
    per_decade: Few = 3
    finest: SomeFew = 24  # values of df between 2.1 and 250 at which the breakdown is predicted
    training_dfs: Distinct[Freedom] = (math.inf, 10.0, 6.0, 4.0, 3.0, 2.5, 2.0, 1.0)
    training_length: Annotated[Length, Field(ge=2)] = 100
    noise_variance: Positive = 0.1
    step_size: Positive = 0.02
    steps: Count = 1500
    batch_size: Count = 32
    runs: Replicas = 24
    test_prompts: Count = 4000
    seed: Seed = 0

    @pydantic.field_validator("dfs")
    @classmethod
    def gaussian_among(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        """Breakdowns are measured against Gaussian tokens."""
        if math.inf not in values:
            raise ValueError("inf, the Gaussian law, must be among them")
        return values

    @pydantic.field_validator("lognormal_tilts")
    @classmethod
    def not_zero(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        """Without a tilt all weights are equal."""
        if 0.0 in values:
            raise ValueError("a tilt of 0 reads all tokens alike")
        return values
