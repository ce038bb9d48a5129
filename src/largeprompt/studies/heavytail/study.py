"""N3: what heavy tails do to a softmax layer, where the infinite-prompt picture breaks, and what is
computed beyond.
"""

import math

from largeprompt.runs.study import Part, Study, stacked
from largeprompt.studies.claims import claims
from largeprompt.studies.heavytail.config import HeavyTailConfig
from largeprompt.studies.heavytail.figures import FIGURES
from largeprompt.studies.heavytail.parts import (
    breakdown,
    law_with_tilts,
    laws,
    with_measured_breakdowns,
)
from largeprompt.studies.heavytail.rules import RULES
from largeprompt.studies.heavytail.training import train
from largeprompt.studies.variables import variables

STUDY = Study(
    "heavytail",
    "Heavy tails: where the infinite prompt breaks",
    "How heavy may the tails of the tokens be before a long prompt is read through a few tokens, "
    "and what is computed then?",
    "Student-t tokens from df = inf to 1, lognormal and Laplace tokens. Quadrature gives the "
    "expected Σ w², largest weight and distance to the largest token at every length before a "
    "prompt is drawn; prompts stand beside it, the same uniform numbers behind every Student-t "
    "law. A law is said to break where Σ w² is twice that of Gaussian tokens. Training is SGD on "
    "drawn prompts of in-context regression with one scalar Student-t input, beside exact "
    "gradient descent.",
    HeavyTailConfig,
    HeavyTailConfig(
        dfs=(math.inf, 20.0, 10.0, 5.0, 3.0, 2.0, 1.0),
        tilts=(1.0,),
        laplace_tilts=(0.5, 1.1, 2.5),
        lognormal_tilts=(-1.0, 1.0),
        lengths=(10, 100, 1000, 10_000),
        tokens=400_000,
        most_replicas=4000,
        per_decade=2,
        finest=10,
        training_dfs=(math.inf, 4.0, 1.0),
        training_length=30,
        steps=400,
        runs=16,
        test_prompts=1000,
    ),
    parts=[  # in an order that keeps two workers busy to the end
        Part("training, df", train, lambda config: config.training_dfs, stacked("training_df")),
        Part("breakdown, u", breakdown, lambda config: config.tilts, stacked("breakdown_tilt")),
        Part("law", law_with_tilts, lambda config: list(laws(config)), stacked("case")),
    ],
    rules=RULES,
    figures=FIGURES,
    claims=claims("N3"),
    variables=variables("heavytail"),
    combine=with_measured_breakdowns,
)
