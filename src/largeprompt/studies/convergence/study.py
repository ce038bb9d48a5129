"""E1, E3, F1, C3, C4: how far a finite prompt is from its limit, and what decides that."""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from largeprompt.runs.study import Part, Study, along, side_by_side, stacked
from largeprompt.studies.claims import claims
from largeprompt.studies.convergence.cases import regimes, regression, scaling, sharpness, short
from largeprompt.studies.convergence.config import ConvergenceConfig
from largeprompt.studies.convergence.curves import errors, spectrum_errors
from largeprompt.studies.convergence.figures import FIGURES
from largeprompt.studies.convergence.rules import RULES
from largeprompt.studies.variables import labels


def combine(config: ConvergenceConfig, parts: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """All side by side, with the lengths that constants are fitted on."""
    return side_by_side(config, parts).assign(
        short_limit=("short_variance", np.asarray(config.short_variances)),  # ‖Γu‖²
        fitted_from=config.fitted[0],
        fitted_to=config.fitted[1],
    )


STUDY = Study(
    name="convergence",
    title="How fast a finite prompt reaches its limit",
    question="How far are output and gradients over L tokens from their limit, what decides that, "
    "and where do short prompts fail?",
    method="The exact law gives the mean squared errors of output and derivatives from L = 1 to "
    "10⁸, and of the output for seven spectra of one trace; certificates stand above them, and "
    "drawn prompts check them. The constants of the paper's form are fitted to the exact law.",
    config=ConvergenceConfig,
    quick=ConvergenceConfig(
        points=25,
        drawn_lengths=(1, 10, 30, 100, 300, 1000),
        replicas=400,
        derivative_lengths=(10, 30),
        fitted=(10, 1000),
        spectra=("condition 1", "condition 100", "condition 10000", "power law 2"),
        spectrum_points=25,
        short_dims=(1, 16),
        short_variances=(0.5, 2.0),
        short_per_decade=5,
        regression_conditions=(1, 1e4),
        regression_per_decade=2,
        sharpness_points=21,
        regime_variances=41,
        regime_lengths=31,
    ),
    parts=[
        Part(
            "errors",
            errors,
            over=lambda config: config.score_variances,
            join=along("score_variance"),
        ),
        Part(
            "spectrum", spectrum_errors, over=lambda config: config.spectra, join=along("spectrum")
        ),
        Part("short", short, over=lambda config: config.short_dims, join=along("short_dim")),
        Part(
            "regression",
            regression,
            over=lambda config: config.regression_conditions,
            join=along("regression_condition"),
        ),
        Part(
            "sharpness",
            sharpness,
            over=lambda _: ("Gaussian", "two clusters"),
            join=stacked("case"),
        ),
        Part("regimes", regimes),
        Part("scaling", scaling),
    ],
    rules=RULES,
    figures=FIGURES,
    claims=claims("C3", "C4", "E1", "E3", "F1"),
    variables=labels(
        {
            "exact": "mean squared distance to the limit, exact",
            "certified": "proved upper bound of the mean squared distance",
            "frozen": "whether the softmax is frozen at this length",
            "trace": "trace of the covariance",
            "short_limit": "squared norm of the limit of isotropic tokens",
            "short_variance": "variance of the scores of isotropic tokens",
            "risk": "population risk at the infinite-prompt optimum",
            "regression_condition": "condition number of the inputs' covariance",
            "ratio": "certified bound over exact error",
            "multiple": "prompt length over ρ",
            "regime": "regime named by σ/√(2 ln L)",
            "regime_variance": "variance of the scores",
            "factor": "factor on the scores that keeps the effective tokens, exact",
            "*_factor": "factor on the scores by *",
            "scaled_variance": "variance of the scores before scaling",
            "growth": "how many times longer the prompt becomes",
        }
    ),
    combine=combine,
)
