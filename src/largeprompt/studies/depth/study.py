"""Does the picture survive depth? Gaussian closure of residual self-attention against systems of L
tokens, layer by layer.
"""

from largeprompt.runs.study import Part, Study, side_by_side, stacked
from largeprompt.studies.claims import claims
from largeprompt.studies.depth.config import THRESHOLD, DepthConfig, normalised_stacks, stacks
from largeprompt.studies.depth.figures import FIGURES
from largeprompt.studies.depth.parts import normalised_errors, one_layer, stack_errors
from largeprompt.studies.depth.rules import RULES
from largeprompt.studies.variables import variables

STUDY = Study(
    "depth",
    "Depth: residual self-attention, layer by layer",
    "Does the infinite-prompt picture survive depth, with which error at length L, and where does "
    "it break?",
    "An infinite Gaussian prompt stays Gaussian through residual self-attention, so that a "
    "recursion on mean and covariance gives an affine token map through all layers. The noise of "
    "L tokens, correlated between layers and fed back by the tokens it moves, is propagated to "
    "first order and set against drawn prompts, for several spectra, weights and scalings. With "
    "normalisation the closure is approximate, and its error at infinite length is predicted by "
    "quasi-random tokens.",
    DepthConfig,
    DepthConfig(
        layers=8,
        spectra=("isotropic",),
        other_score_variances=(),
        lengths=(32, 128, 512),
        longest=1024,
        scores=1_000_000,
        replicas=(12, 100),
        degree=3,
        normalised_dims=(4, 16),
        normalised_lengths=(64, 256, 512),
        reference=256,
        control_lengths=(4, 64),
        control_replicas=300,
    ),
    parts=[
        Part("stack", stack_errors, over=stacks, join=stacked("case")),
        Part("normalised", normalised_errors, over=normalised_stacks, join=stacked("normalised")),
        Part("one layer", one_layer),
    ],
    rules=RULES,
    figures=FIGURES,
    claims=claims("C7", "Q2"),
    variables=variables("depth"),
    combine=lambda config, parts: side_by_side(config, parts).assign(
        threshold=THRESHOLD, fitted_from=config.fitted_from
    ),
)
