"""Does the Gaussian closure of residual self-attention survive depth, against drawn prompts?"""

from typing import Annotated, Self

import pydantic

from largeprompt.runs.settings import (
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
from largeprompt.runs.study import Part, Study, side_by_side, stacked
from largeprompt.studies.claims import claims
from largeprompt.studies.depth.cells import (
    Scale,
    Spectrum,
    Weights,
    normalized_errors,
    normalized_stacks,
    stack_errors,
    stacks,
)
from largeprompt.studies.depth.figures import FIGURES
from largeprompt.studies.depth.rules import RULES
from largeprompt.studies.variables import labels


@settings
class DepthConfig:
    """Gaussian tokens of trace d through N layers, for every spectrum, weights and size of V."""

    dim: Dimension = 4
    layers: Few = 24  # number of layers
    mean: pydantic.FiniteFloat = 0.25  # each coordinate of the mean of the tokens
    spectra: Distinct[Spectrum] = ("isotropic", "power law")  # covariances of the tokens
    # weights that are drawn for each layer, or shared by all
    weights: Distinct[Weights] = ("random", "shared")
    scales: Distinct[Scale] = ("1/N", "1/√N", "1")  # size of V, with N layers
    score_variance: Positive = 0.2  # variance of the scores over the tokens of the first layer
    degree: Few = 4  # highest degree of the polynomials of the predicted noise
    lengths: Increasing[Length] = (32, 128, 512, 2048)
    judged_from: Length = 128  # shortest prompt that is compared with the first order
    replicas: tuple[Replicas, Replicas] = (6, 400)  # fewest and most prompts drawn for each number
    normalized_dims: Distinct[Dimension] = (4, 8)  # dimensions of the stacks with normalized tokens
    normalized_score_variance: Positive = 0.5  # variance of the scores in these stacks
    # prompt lengths in these stacks
    normalized_lengths: Annotated[Increasing[Length], Two] = (128, 512, 2048)
    reference: Replicas = 1024  # Sobol points in place of the infinite prompt
    seed: Seed = 0

    @pydantic.model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.lengths[-1] < self.judged_from:
            raise ValueError("judged_from must be at most the largest of lengths")
        return self


LABELS = {
    "band": "predicted relative squared error times L, to first order",
    "independent": "predicted relative squared error times L, layers independent",
    "score_variance": "query-averaged variance of the scores that the layer reads",
    "error": "relative squared error over drawn prompts, with control variates",
    "standard_error": "standard error of the relative squared error",
    "predicted_first": "first layer at which the closure should break",
    "predicted_last": "last layer at which the closure should break",
    "measured_breaking": "first layer whose measured error passes the threshold",
    "level": "relative squared error at infinite length, predicted",
    "measured_level": "relative squared error at infinite length, extrapolated",
    "level_error": "standard error of the predicted level",
    "measured_level_error": "standard error of the extrapolated level",
    "normalized_error": "relative squared error with normalization, drawn prompts",
    "plain_edge": "first layer in the heavy regime without normalization",
    "judged_from": "shortest prompt that is compared with the first order [tokens]",
    "quantity": "what the error is of: tokens, steps or covariance",
    "weights": "random weights, or the same in every layer",
    "value_scale": "size of the value matrices",
    "normalized": "stack with normalization",
    "kind": "kind of normalization",
}

STUDY = Study(
    name="depth",
    title="Depth: residual self-attention, layer by layer",
    question="Does the infinite-prompt picture survive depth, with which error at length L, and "
    "where does it break?",
    method="An infinite Gaussian prompt stays Gaussian through residual self-attention: a "
    "recursion on mean and covariance gives an affine token map through all layers. The noise of "
    "L tokens is propagated to first order and compared with drawn prompts, for several spectra, "
    "weights and scalings. With normalization the closure is approximate, and its error at "
    "infinite length is predicted by quasi-random tokens.",
    config=DepthConfig,
    quick=DepthConfig(
        layers=8,
        spectra=("isotropic",),
        lengths=(32, 128, 512),
        replicas=(3, 100),
        degree=3,
        normalized_dims=(4, 16),
        normalized_lengths=(64, 256, 512),
        reference=256,
    ),
    parts=[
        Part("stack", stack_errors, over=stacks, join=stacked("case")),
        Part("normalized", normalized_errors, over=normalized_stacks, join=stacked("normalized")),
    ],
    rules=RULES,
    figures=FIGURES,
    claims=claims("C7", "Q2"),
    variables=labels(LABELS),
    combine=lambda config, parts: side_by_side(config, parts).assign(
        judged_from=config.judged_from
    ),
)
