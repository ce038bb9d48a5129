"""Settings of the depth study, and the stacks that they name."""

import dataclasses
import itertools
from typing import Annotated, Literal, Self

import pydantic

from largeprompt.runs.settings import (
    Count,
    Dimension,
    Distinct,
    Few,
    Increasing,
    Length,
    Positive,
    Replicas,
    Seed,
    Two,
    settings,
)

# relative error of the step that a layer makes, from which on the closure counts as broken
THRESHOLD = 0.5
Spectrum = Literal["isotropic", "power law", "spiked"]
Weights = Literal["random", "shared"]
Scale = Literal["1/N", "1/√N", "1"]
Kind = Literal["pre", "sphere"]


@settings
class DepthConfig:
    """Gaussian tokens of trace d through N layers; every spectrum, kind of weights and size of V,
    and three score variances.
    """

    dim: Dimension = 4
    layers: Few = 24
    mean: pydantic.FiniteFloat = 0.25
    spectra: Distinct[Spectrum] = ("isotropic", "power law", "spiked")
    weights: Distinct[Weights] = ("random", "shared")
    scales: Distinct[Scale] = ("1/N", "1/√N", "1")
    score_variance: Positive = 0.2
    other_score_variances: tuple[Positive, ...] = (0.05, 0.8)
    degree: Few = 4
    lengths: Increasing[Length] = (32, 128, 512, 2048)
    longest: Length = 8192
    scores: Count = 10_000_000
    replicas: tuple[Replicas, Replicas] = (6, 400)
    fitted_from: Length = 128
    normalised_dims: Distinct[Dimension] = (4, 8, 16)
    normalised_scales: Distinct[Scale] = ("1",)
    normalised_score_variance: Positive = 0.5
    normalised_lengths: Annotated[Increasing[Length], Two] = (128, 512, 2048)
    reference: Replicas = 2048
    scrambles: Replicas = 4
    control_lengths: Increasing[Length] = (4, 16, 64, 256)
    control_replicas: Replicas = 2000
    probes: Count = 16
    seed: Seed = 0

    @pydantic.model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.longest <= self.lengths[-1]:
            raise ValueError(f"longest must be above lengths, which go up to {self.lengths[-1]}")
        if sum(length >= self.fitted_from for length in self.lengths) < 2:
            raise ValueError("at least two lengths must be from fitted_from on")
        if len({self.score_variance, *self.other_score_variances}) <= len(
            self.other_score_variances
        ):
            raise ValueError(
                "other_score_variances must differ from each other and from score_variance"
            )
        return self


@dataclasses.dataclass(frozen=True)
class Case:
    """One stack: spectrum of the tokens, random or shared weights, size of V, query-averaged score
    variance on entry.
    """

    spectrum: Spectrum
    weights: Weights
    scale: Scale
    score_variance: float

    def __str__(self) -> str:
        return f"{self.spectrum}, {self.weights}, V ~ {self.scale}, σ² = {self.score_variance:g}"


def stacks(config: DepthConfig) -> list[Case]:
    """All spectra, weights and sizes of V at the main score variance; the first of them with √N at
    the others.
    """
    every = itertools.product(config.scales, config.weights, config.spectra)
    found = [
        Case(spectrum, weights, scale, config.score_variance) for scale, weights, spectrum in every
    ]
    middle = config.scales[len(config.scales) // 2]
    return found + [
        Case(config.spectra[0], config.weights[0], middle, each)
        for each in config.other_score_variances
    ]


def long_cases(config: DepthConfig) -> list[Case]:
    """Cases that also run at the longest length: the first with random, and the first with shared
    weights.
    """
    middle = config.scales[len(config.scales) // 2]
    return [
        Case(config.spectra[0], weights, middle, config.score_variance)
        for weights in config.weights
    ]


def normalised_stacks(config: DepthConfig) -> list[tuple[Kind, Scale, int]]:
    """Kind of normalisation, size of V and dimension of each stack that has one."""
    kinds: tuple[Kind, ...] = ("pre", "sphere")
    return [
        (kind, scale, dim)
        for dim in config.normalised_dims
        for kind in kinds
        for scale in config.normalised_scales
    ]
