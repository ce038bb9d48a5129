"""Do prompts whose tokens depend on each other follow the theory, and what does a limit look like?

Tokens are windows of a Markov chain (in-context n-grams), or autocorrelated Gaussian vectors.
"""

import math
from typing import Annotated, Self

import pydantic
from pydantic import Field

from largeprompt.runs.settings import (
    Dimension,
    Distinct,
    Few,
    Increasing,
    Length,
    NonNegative,
    Positive,
    Seed,
    SomeFew,
    TwoOrMore,
    settings,
)
from largeprompt.runs.study import Part, Study, along
from largeprompt.studies.claims import claims
from largeprompt.studies.dependent.figures import FIGURES
from largeprompt.studies.dependent.paths import affine_gap, autocorrelated, case_name, mixing, path
from largeprompt.studies.dependent.rules import RULES
from largeprompt.studies.dependent.training import training
from largeprompt.studies.variables import labels

Letters = Annotated[Dimension, Field(ge=2)]
MOST_CONTEXTS = 100  # the exact law multiplies square matrices of this size


@settings
class DependentConfig:
    """Chains (alphabet, order), read by a head that scores a match by β; Gaussian AR(1) tokens."""

    # sizes of the alphabet and orders of the chains
    cases: Distinct[tuple[Letters, Few]] = ((3, 1), (5, 1), (10, 1), (3, 2), (2, 3))
    concentration: Positive = 1.0  # parameter of the Dirichlet law of the rows
    betas: Increasing[NonNegative] = (0.5, 2.0, 4.0)  # scores of a match
    lengths: Increasing[Length] = (32, 128, 512, 2048, 8192, 100_000)
    drawn_lengths: Increasing[Length] = (32, 128)  # prompt lengths at which prompts are drawn
    replicas: TwoOrMore = 20_000
    mixing_alphabet: Letters = 5  # letters of the chains that mix slowly
    # scores of a match in these chains
    mixing_betas: Increasing[NonNegative] = (0.0, 2.0, 4.0, 8.0)
    # probabilities of staying at a letter
    holdings: Increasing[Annotated[float, Field(ge=0, lt=1)]] = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98)
    mixing_length: Length = 1_000_000  # prompt length of these chains
    # scores at which the limit is compared with the affine read-out
    operator_betas: Annotated[Increasing[Positive], Field(min_length=2)] = (
        *(0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 12.0),
    )
    training_alphabet: Letters = 4  # letters of the chains that are trained on
    training_chains: Few = 3  # number of chains that are trained on
    # prompt lengths in training
    training_lengths: Annotated[Increasing[Length], Field(min_length=3)] = (
        *(32, 128, 512, 2048, 8192),
    )
    until: Positive = 1e8  # time until which the flow is computed
    times: SomeFew = 81  # times at which a flow is recorded
    tube_until: Positive = 100.0  # time until which flows are compared with their bound
    # correlations of successive Gaussian tokens
    correlations: Distinct[Annotated[float, Field(gt=-1, lt=1)]] = (0.5, 0.9, -0.5)
    score_variances: Increasing[Positive] = (0.25, 1.0, 2.0)
    correlated_length: Length = 10_000  # prompt length of correlated tokens
    correlated_replicas: TwoOrMore = 1000  # prompts of correlated tokens that are drawn
    seed: Seed = 0

    @pydantic.model_validator(mode="after")
    def _fits_together(self) -> Self:
        if any(m > 1 and r * math.log(m) > math.log(MOST_CONTEXTS) for m, r in self.cases):
            raise ValueError(f"cases: alphabet to the power of order is at most {MOST_CONTEXTS}")
        if self.tube_until > self.until:
            raise ValueError(f"tube_until must be at most until, {self.until:g}")
        return self


LABELS = {
    "constant": "predicted constant C of an error C/L",
    "independent_constant": "constant of independent tokens of the same law",
    "memoryless": "mean squared error of independent symbols, exact",
    "relaxation_time": "relaxation time of the chain [symbols]",
    "alphabet": "symbols of the alphabet",
    "order": "order of the chain",
    "mixing_constant": "predicted constant C of an error C/L",
    "mixing_independent": "constant of independent tokens of the same law",
    "mixing_exact": "mean squared error times L, exact",
    "mixing_time": "relaxation time of the chain [symbols]",
    "mixing_ngram_ratio": "constant of the chain over that of independent tokens, for β = 30",
    "best_beta_*": "β of least risk, *",
    "beta_*": "β along the flow, *",
    "crossover": "predicted time at which the finite prompt leaves the infinite one",
    "pseudo_count": "pseudo-count of the expansion",
    "curvature": "curvature of the expansion",
    "ngram_risk_exact": "exact risk of the empirical n-gram",
    "saved_*": "risk that the best β saves over the empirical n-gram, *",
    "row_distance": "distance of the limit to the rows of the chain",
    "affine_gap": "distance of the limit to the affine read-out",
    "effective": "predicted effective length of autocorrelated tokens [tokens]",
    "correlated_predicted": "mean squared error at the effective length, exact",
    "correlated_independent": "mean squared error of independent tokens, exact",
    "correlated_drawn": "mean squared error over drawn autocorrelated tokens",
    "correlated_error": "standard error of the mean squared error over autocorrelated tokens",
    "tube_until": "time up to which flows are compared",
    "beta": "strength β of a match",
    "query": "which context asks",
    "holding": "probability of staying, added to the chain",
    "*_beta": "strength β of a match, *",
    "correlation": "correlation of neighboring tokens",
}

STUDY = Study(
    name="dependent",
    title="Tokens that depend on each other: Markov chains and autocorrelated tokens",
    question="Does the large-prompt picture hold for in-context n-grams and correlated tokens, and "
    "what replaces the linear operator?",
    method="Paths of random chains are read by a head that scores a match of the context by β. The "
    "limit is a discrete tilt; the error at every length is exact by transfer matrices, and "
    "predicted for long prompts. β is trained by gradient flow on exact risks. Autocorrelated "
    "Gaussian tokens are drawn and compared with the effective number of independent ones.",
    config=DependentConfig,
    quick=DependentConfig(
        cases=((3, 1), (10, 1), (3, 2)),
        lengths=(32, 128, 512, 100_000),
        drawn_lengths=(32,),
        mixing_alphabet=3,
        mixing_betas=(0.0, 2.0, 8.0),
        holdings=(0.0, 0.8, 0.95),
        operator_betas=(0.1, 1.0, 4.0, 12.0),
        training_alphabet=3,
        training_chains=1,
        training_lengths=(128, 512, 2048),
        times=25,
        correlations=(0.5, 0.9),
        correlated_length=1000,
        correlated_replicas=400,
    ),
    parts=[  # the longest first
        Part("training", training),
        Part("chain", path, over=lambda config: config.cases, join=along("case", name=case_name)),
        Part("mixing", mixing),
        Part("correlated", autocorrelated),
        Part("affine", affine_gap),
    ],
    rules=RULES,
    figures=FIGURES,
    claims=claims("C5", "N1", "Q3"),
    variables=labels(LABELS),
)
