"""Settings of the study `training`."""

import math
from typing import Annotated, Literal

import pydantic

from largeprompt.runs.settings import (
    AnyLength,
    Count,
    Dimension,
    Distinct,
    Few,
    Increasing,
    Length,
    NonNegative,
    Positive,
    Some,
    settings,
)
from largeprompt.studies.covariances import Covariance
from largeprompt.studies.ranges import Decade

FiniteLength = Annotated[AnyLength, pydantic.Field(le=10**15)]


@settings
class TrainingConfig:
    """In-context regression without noise from the theorem's balanced start, then other inputs.

    ``lengths`` are those of the tubes, ``gradient_lengths`` those of the gradients. Excess risks
    and the drift have identity covariance, ``end_*`` are the flows to their end.
    """

    dim: Dimension = 5
    covariance: Covariance = "toeplitz"
    lengths: Increasing[FiniteLength] = (30, 100, 1000, 10_000, 100_000, 1_000_000)
    until: Positive = 20.0
    times: Few = 61
    gradient_lengths: Increasing[FiniteLength] = (10, 30, 100, 300, 1000, 10**4, 10**5, 10**6)
    gradient_times: Increasing[NonNegative] = (0.0, 0.1, 0.3, 1.0, 3.0)
    excess_dims: Distinct[Dimension] = (1, 2, 3, 5, 10)
    excess_decades: Annotated[Increasing[Decade], pydantic.Field(min_length=2, max_length=2)] = (
        1,
        9,
    )
    drift_dim: Dimension = 3
    drift_lengths: Some[AnyLength] = (1e2, 1e3, 1e4, 1e5, math.inf)
    drift_until: Positive = 3e5
    drift_times: Few = 121
    end_covariances: Distinct[Covariance] = ("identity", "toeplitz", "condition 1e4")
    end_dims: Distinct[Dimension] = (2, 5, 20)
    inputs: Distinct[Literal["Rademacher", "uniform"]] = ("Rademacher", "uniform")
    input_lengths: Increasing[Length] = (10, 30, 100, 300, 1000, 10_000)
    input_until: Positive = 6.0
    input_steps: Count = 30
    noise_variance: NonNegative = 0.1

    @pydantic.model_validator(mode="after")
    def consistent(self) -> "TrainingConfig":
        """Gradients are compared on the way of the flow."""
        if self.gradient_times[-1] > self.until:
            raise ValueError(f"gradient_times must end by until = {self.until:g}")
        return self
