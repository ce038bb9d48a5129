"""F1: short prompts, L = 1 to 30. How wrong is the large-prompt theory there, and from which length
on is it right?
"""

from largeprompt.runs.study import Part, Study, along, stacked
from largeprompt.studies.claims import claims
from largeprompt.studies.shortcontext.figures import FIGURES
from largeprompt.studies.shortcontext.parts import (
    ShortContextConfig,
    output_errors,
    regression,
    with_long_enough,
)
from largeprompt.studies.shortcontext.rules import RULES
from largeprompt.studies.variables import variables

STUDY = Study(
    "shortcontext",
    "Short contexts",
    "How wrong is the large-prompt theory for L = 1 to 30, and from which length on is it right?",
    "The exact law gives the error of the limit and of the first order for every L from 1 to 30 "
    "and on to 10⁹, in several dimensions, score variances and condition numbers. The risk of "
    "in-context regression at the infinite-prompt optimum is computed likewise. The smallest "
    "lengths from which on the theory is within 50 % and 10 % are read off.",
    ShortContextConfig,
    ShortContextConfig(
        dims=(1, 16),
        score_variances=(0.5, 2.0),
        per_decade=5,
        regression_per_decade=2,
        regression_conditions=(1, 1e4),
    ),
    parts=[
        Part(
            "output",
            output_errors,
            over=lambda config: ("isotropic", "conditioned"),
            join=stacked("case"),
        ),
        Part(
            "regression",
            regression,
            over=lambda config: config.regression_conditions,
            join=along("regression_condition"),
        ),
    ],
    rules=RULES,
    figures=FIGURES,
    claims=claims("F1"),
    variables=variables("shortcontext"),
    combine=with_long_enough,
)
