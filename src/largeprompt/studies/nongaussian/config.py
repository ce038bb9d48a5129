"""Settings of the study: families of scalar laws and dependent tokens."""

from typing import Annotated

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
    Some,
    settings,
)

CONTROL = "Gaussian"


@settings
class NonGaussianConfig:
    """Scalar tokens of unit variance, U = V = 1, so that the tilt is the query; AR(1) tokens in R²."""

    terms: Some[Few] = (1, 2, 4, 8, 16, 32, 64)
    shapes: Some[Annotated[float, Field(gt=1, le=1000)]] = (1.2, 1.5, 1.8, 2.2, 3.0, 4.0, 8.0)
    separations: Some[Annotated[float, Field(ge=0, le=1)]] = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.95)
    skews: Some[Annotated[float, Field(gt=-0.995, lt=0.995)]] = (
        0.02,
        0.05,
        0.1,
        0.2,
        0.4,
        0.6,
        0.9,
    )
    tilts: Increasing[Positive] = (0.5, 1.0, 2.0)
    lengths: Increasing[Length] = (10, 30, 100, 300, 1000, 3000, 10_000)
    replicas: Replicas = 500
    scaling_points: Annotated[int, Field(ge=2)] = 13
    correlations: Distinct[Annotated[float, Field(gt=-1, lt=1)]] = (0.0, 0.5, 0.9, -0.5)
    repeats: Distinct[Count] = (1, 2, 10)
    score_variances: Increasing[Positive] = (0.25, 1.0, 2.0)
    dependent_lengths: Increasing[Length] = (100, 300, 1000, 3000, 10_000)
    dependent_replicas: Replicas = 1000
    seed: Seed = 0
