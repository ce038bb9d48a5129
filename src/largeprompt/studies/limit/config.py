"""Settings of the study."""

from typing import Annotated

from pydantic import Field

from largeprompt.runs.settings import (
    Dimension,
    Distinct,
    Few,
    Increasing,
    Length,
    Positive,
    Seed,
    Some,
    SomeFew,
    Two,
    settings,
)
from largeprompt.studies.ranges import Longest


@settings
class LimitConfig:
    """Random layers of the identities; six laws in R^dim; scalar families that leave the Gaussian.

    The query has score variance ``score_variance`` in R^dim; for scalar tokens it is the tilt.
    """

    dims: Increasing[Dimension] = (1, 2, 5, 10, 20, 50, 100, 200)
    layers: Few = 12  # random layers for each dimension
    largest_score_variance: Positive = 9.0  # of the random layers
    # Gauss-Hermite nodes in each direction
    nodes: Annotated[Increasing[Few], Two] = (1, 2, 3, 5, 8, 12, 20, 32)
    prompts: Distinct[Length] = (1, 10, 100, 10_000)  # lengths compared with PyTorch
    dim: Annotated[Dimension, Field(ge=2, le=16)] = 4
    # Laplace tokens, read along (1, ..., 1), have a limit below a score variance of 2 dim
    score_variance: Annotated[Positive, Field(lt=4)] = 1.5
    longest: Longest = 1e12
    points: SomeFew = 49
    drawn_lengths: Increasing[Length] = (10, 30, 100)  # lengths of drawn prompts
    tilts: Increasing[Positive] = (0.5, 1.0, 2.0)  # of the scalar families
    terms: Some[Few] = (1, 2, 4, 8, 16, 32, 64)  # signs in a sum
    # shapes β
    shapes: Some[Annotated[float, Field(ge=1.5, le=1000)]] = (1.5, 1.8, 2.2, 3.0, 4.0, 8.0)
    # places ±m of two components
    separations: Some[Annotated[float, Field(ge=0, le=1)]] = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.95)
    # skewness of skewed normal laws
    skews: Some[Annotated[float, Field(gt=-0.995, lt=0.995)]] = (
        *(0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.9),
    )
    scaling_points: Annotated[Few, Field(ge=2)] = 13  # parameters on the way to the Gaussian
    seed: Seed = 0
