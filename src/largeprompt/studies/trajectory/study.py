"""E2, C5, C7: does the flow at length L stay in a tube around the infinite-prompt flow, and how
fast does its risk follow?
"""

from largeprompt.runs.study import Part, Study, stacked
from largeprompt.studies.claims import claims
from largeprompt.studies.covariances import KINDS
from largeprompt.studies.trajectory.figures import FIGURES
from largeprompt.studies.trajectory.parts import TrajectoryConfig, excess, tube, with_needed_lengths
from largeprompt.studies.trajectory.rules import RULES
from largeprompt.studies.variables import variables

STUDY = Study(
    "trajectory",
    "Training on long prompts against the infinite prompt",
    "Does gradient flow at length L follow the infinite-prompt flow, and from which L on is its "
    "risk within eps?",
    "Flows on the exact risk of every length and of the infinite prompt run side by side from the "
    "theorem's balanced start. Their distance is compared with a Grönwall envelope made of the "
    "gradients and Hessians met on the way. Excess risks are minimised exactly for identity "
    "covariance, up to L = 10⁹, and inverted for L(eps).",
    TrajectoryConfig,
    TrajectoryConfig(
        dim=3,
        lengths=(30, 1000, 10**5),
        times=31,
        excess_dims=(3,),
        excess_decades=(1, 5),
        targets=(1e-1, 1e-2, 1e-3),
    ),
    parts=[
        Part("tube", tube, over=lambda config: list(KINDS)),
        Part("excess", excess, over=lambda config: config.excess_dims, join=stacked("dim")),
    ],
    rules=RULES,
    figures=FIGURES,
    claims=claims("C5", "C7", "E2"),
    variables=variables("trajectory"),
    combine=with_needed_lengths,
)
