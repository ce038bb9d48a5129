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
    """Scalar tokens; training on regression with one scalar input."""

    # degrees of freedom of Student-t tokens
    dfs: Distinct[Freedom] = (math.inf, 20.0, 10.0, 5.0, 3.0, 2.0, 1.0)
    tilts: Distinct[Positive] = (0.5, 1.0, 2.0)  # tilts of Student-t tokens
    laplace_tilts: Distinct[Positive] = (0.5, 0.9, 1.1, 1.3, 1.8, 2.5)  # tilts of Laplace tokens
    lengths: Increasing[Length] = (10, 100, 1000, 10_000)  # lengths of drawn prompts
    tokens: Count = 2_000_000  # tokens drawn for each law and length
    most_replicas: Count = 4000  # most prompts drawn for each
    decades: Annotated[int, Field(ge=2, le=15)] = 12  # longest exact prompt, as a power of 10
    per_decade: Few = 3  # exact lengths in each decade
    finest: SomeFew = 24  # values of df at which breakdowns are computed first
    # degrees of freedom of the inputs
    training_dfs: Distinct[Freedom] = (math.inf, 10.0, 6.0, 4.0, 3.0, 2.0)
    training_length: Annotated[Length, Field(ge=2)] = 100  # prompt length in training
    noise_variance: Positive = 0.1  # variance of the noise in the answers
    step_size: Positive = 0.02  # step size of SGD and descent
    steps: Count = 1500  # steps of training
    batch_size: Count = 32  # prompts in a batch
    runs: Replicas = 16  # runs of SGD
    seed: Seed = 0

    @pydantic.field_validator("dfs", "training_dfs")
    @classmethod
    def gaussian_among(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        """Heavy tails are measured against Gaussian tokens."""
        if math.inf not in values:
            raise ValueError("inf, the Gaussian law, must be among them")
        return values
