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


@settings
class HeavyTailConfig:
    """Scalar tokens; training on regression with one scalar input.

    ``tokens`` are drawn for each law and length, in at most ``most_replicas`` prompts; breakdowns
    are computed at ``finest`` values of df from 2.1 to 250, on lengths up to 10^``decades``.
    """

    dfs: Distinct[Freedom] = (math.inf, 20.0, 10.0, 5.0, 3.0, 2.0, 1.0)
    tilts: Distinct[Positive] = (0.5, 1.0, 2.0)
    laplace_tilts: Distinct[Positive] = (0.5, 0.9, 1.1, 1.3, 1.8, 2.5)
    lengths: Increasing[Length] = (10, 100, 1000, 10_000)
    tokens: Count = 2_000_000
    most_replicas: Count = 4000
    decades: Annotated[int, Field(ge=2, le=15)] = 12
    per_decade: Few = 3
    finest: SomeFew = 24
    training_dfs: Distinct[Freedom] = (math.inf, 10.0, 6.0, 4.0, 3.0, 2.0)
    training_length: Annotated[Length, Field(ge=2)] = 100
    noise_variance: Positive = 0.1
    step_size: Positive = 0.02
    steps: Count = 1500
    batch_size: Count = 32
    runs: Replicas = 16
    seed: Seed = 0

    @pydantic.field_validator("dfs", "training_dfs")
    @classmethod
    def gaussian_among(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        """Heavy tails are measured against Gaussian tokens."""
        if math.inf not in values:
            raise ValueError("inf, the Gaussian law, must be among them")
        return values
