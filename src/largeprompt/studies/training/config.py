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
    """In-context regression without noise from the theorem's balanced start, then other inputs."""

    dim: Dimension = 5
    covariance: Covariance = "toeplitz"  # covariance of the inputs of the tubes
    lengths: Increasing[FiniteLength] = (30, 100, 1000, 10_000, 100_000, 1_000_000)
    until: Positive = 20.0  # time at which the tubes end
    times: Few = 61  # times of the tubes
    # prompt lengths of the gradients
    gradient_lengths: Increasing[FiniteLength] = (10, 30, 100, 300, 1000, 10**4, 10**5, 10**6)
    # times of the infinite flow at which gradients are compared
    gradient_times: Increasing[NonNegative] = (0.0, 0.1, 0.3, 1.0, 3.0)
    excess_dims: Distinct[Dimension] = (1, 2, 3, 5, 10)  # dimensions of the excess risks
    # longest prompt of them, as a power of 10
    excess_decades: Annotated[Decade, pydantic.Field(ge=3)] = 9
    drift_dim: Dimension = 3  # dimension of the drift
    drift_lengths: Some[AnyLength] = (1e2, 1e3, 1e4, 1e5, math.inf)  # prompt lengths of the drift
    drift_until: Positive = 3e5  # time at which the drift ends
    drift_times: Few = 121  # times of the drift
    # covariances of flows to their end
    end_covariances: Distinct[Covariance] = ("identity", "toeplitz", "condition 1e4")
    end_dims: Distinct[Dimension] = (2, 5, 20)  # dimensions of flows to their end
    # laws of inputs that are not Gaussian
    inputs: Distinct[Literal["Rademacher", "uniform"]] = ("Rademacher", "uniform")
    input_lengths: Increasing[Length] = (10, 30, 100, 300, 1000, 10_000)  # prompt lengths for these
    input_until: Positive = 6.0  # time at which their flows end
    input_steps: Count = 30  # steps of their flows
    noise_variance: NonNegative = 0.1  # variance of the noise in their answers

    @pydantic.model_validator(mode="after")
    def consistent(self) -> "TrainingConfig":
        """Gradients are compared on the way of the flow."""
        if self.gradient_times[-1] > self.until:
            raise ValueError(f"gradient_times must end by until = {self.until:g}")
        return self
