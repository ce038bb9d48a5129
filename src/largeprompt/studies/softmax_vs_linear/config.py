"""Settings of the contest between softmax and linear attention."""

from typing import Annotated, Literal

from pydantic import Field

from largeprompt.runs.settings import (
    Count,
    Dimension,
    Distinct,
    Increasing,
    Length,
    NonNegative,
    Positive,
    Replicas,
    Seed,
    settings,
)

# up to where the lattice of score scales is accurate to 1e-6
LatticeDim = Annotated[int, Field(ge=1, le=20)]
SeveralTokens = Annotated[int, Field(ge=2, le=10**15)]  # a pair of heads is of no use for one token
Scale = Annotated[float, Field(ge=0.1, le=12)]
Spectrum = Literal["identity", "toeplitz", "condition 1e4", "queries near a line"]


@settings
class SoftmaxVsLinearConfig:
    """In-context regression with tr WΣ = 1, so that s² is the ratio of noise to signal; then tasks
    that need more than moments.
    """

    dims: Distinct[LatticeDim] = (1, 2, 3, 5, 10, 20)
    noises: Distinct[NonNegative] = (0.0, 0.1, 1.0, 10.0)
    lengths: Increasing[Length] = (
        1,
        2,
        3,
        4,
        5,
        7,
        10,
        20,
        50,
        100,
        300,
        1000,
        10_000,
        100_000,
        1_000_000,
        1_000_000_000,
    )
    spectra: Distinct[Spectrum] = ("toeplitz", "condition 1e4", "queries near a line")
    spectrum_dim: Dimension = 5
    spectrum_lengths: Increasing[Length] = (10, 100, 1000, 10_000, 1_000_000_000)
    spectrum_noises: Distinct[NonNegative] = (0.0, 1.0)
    trained_spectra: Distinct[Spectrum] = ("identity", "toeplitz")
    trained_dim: Dimension = 3
    trained_lengths: Increasing[Length] = (10, 100, 1000, 10_000)
    trained_noise: NonNegative = 0.1
    until: Positive = 1e7
    starts: Count = 4
    start_until: Positive = 1000.0
    start_lengths: Increasing[Length] = (5, 30)
    largest_scale: Scale = 6.5
    head_dims: Distinct[LatticeDim] = (1, 2, 5)
    head_noises: Distinct[NonNegative] = (0.0, 1.0)
    pair_lengths: Increasing[SeveralTokens] = (
        2,
        3,
        4,
        7,
        20,
        50,
        300,
        1000,
        10_000,
        1_000_000,
        1_000_000_000,
    )
    head_lengths: tuple[SeveralTokens, ...] = (5, 10, 30, 100)
    skew_length: SeveralTokens = 10
    skew_ratios: Distinct[Annotated[float, Field(ge=-1, lt=1)]] = (-1.0, -0.75, -0.5, 0.0, 0.5)
    free_heads: Distinct[Literal[1, 2, 4, 8]] = (1, 2, 4, 8)
    free_dim: LatticeDim = 2
    free_length: SeveralTokens = 10
    free_prompts: Replicas = 16_384
    shift_variances: Increasing[Positive] = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
    shift_dims: Distinct[LatticeDim] = (1, 5)
    shift_lengths: Increasing[SeveralTokens] = (3, 10, 30, 100, 1000, 10_000)
    spikes: Increasing[NonNegative] = (
        0.0,
        1.0,
        1.5,
        2.0,
        3.0,
        4.0,
        6.0,
        8.0,
        12.0,
        16.0,
        24.0,
        32.0,
        48.0,
        64.0,
    )
    location_lengths: Increasing[SeveralTokens] = (10, 100, 1000, 10_000, 1_000_000, 1_000_000_000)
    outlier_shares: Increasing[Annotated[float, Field(gt=0, lt=1)]] = (0.05, 0.1, 0.2, 0.4, 0.6)
    outlier_lengths: Increasing[Length] = (30, 100, 1000, 100_000)
    outlier_dim: Dimension = 5
    replicas: Replicas = 20_000
    seed: Seed = 0


def all_head_lengths(config: SoftmaxVsLinearConfig) -> list[int]:
    """Lengths at which several heads are looked at: the long computations, of four and eight heads,
    first.
    """
    return sorted(
        {*config.pair_lengths, *config.head_lengths},
        key=lambda length: (length not in config.head_lengths, length),
    )
