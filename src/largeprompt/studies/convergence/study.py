"""E1, C3, C4: how far are output and Jacobians of a finite prompt from their limit, and does the
paper's form describe it?
"""

from largeprompt.runs.study import Part, Study, along
from largeprompt.studies.claims import claims
from largeprompt.studies.convergence.figures import FIGURES
from largeprompt.studies.convergence.parts import ConvergenceConfig, errors
from largeprompt.studies.convergence.rules import RULES
from largeprompt.studies.variables import variables

STUDY = Study(
    "convergence",
    "How fast a finite prompt reaches its limit",
    "How far are output and derivatives of attention over L Gaussian tokens from their limit, and "
    "does the paper's form say so?",
    "The exact law gives the mean squared errors of output and both derivatives from L = 1 to 10⁸ "
    "for three score variances. Proved bounds stand above it; drawn prompts are a check. The "
    "constants of the paper's form are fitted to the exact law, with intervals from resampled "
    "streams of drawn prompts.",
    ConvergenceConfig,
    ConvergenceConfig(
        points=25, sampled_lengths=(1, 10, 30, 100, 300, 1000), fitted=(10, 1000), replicas=400
    ),
    parts=[
        Part(
            "errors",
            errors,
            over=lambda config: config.score_variances,
            join=along("score_variance"),
        )
    ],
    rules=RULES,
    figures=FIGURES,
    claims=claims("C3", "C4", "E1"),
    variables=variables("convergence"),
    combine=lambda config, parts: parts["errors"].assign(
        fitted_from=config.fitted[0], fitted_to=config.fitted[1]
    ),
)
