"""Training on long prompts beside the infinite prompt: near it, after it, and its end."""

from itertools import product

from largeprompt.runs.study import Part, Study, along, stacked
from largeprompt.studies.claims import claims
from largeprompt.studies.covariances import KINDS
from largeprompt.studies.training.config import TrainingConfig
from largeprompt.studies.training.figures import FIGURES
from largeprompt.studies.training.flows import drift, ends, excess, tube
from largeprompt.studies.training.inputs import inputs
from largeprompt.studies.training.rules import RULES
from largeprompt.studies.variables import variables

STUDY = Study(
    name="training",
    title="Training on long prompts, beside the infinite prompt",
    question="Does gradient flow at length L follow the infinite-prompt flow, where do both end, "
    "and from which length is the risk within eps?",
    method="Flows on the exact risk of every length and of the infinite prompt run side by side "
    "from the theorem's balanced start. Their distance is compared with a Grönwall envelope, and "
    "their gradients with each other. Excess risks are minimized exactly up to L = 10⁹. Both run "
    "on to their ends. Signs and uniform inputs are trained too.",
    config=TrainingConfig,
    quick=TrainingConfig(
        dim=3,
        lengths=(30, 1000, 10**5),
        times=31,
        excess_dims=(3,),
        excess_decades=5,
        drift_until=3e3,
        end_covariances=("identity", "toeplitz"),
        end_dims=(3,),
        input_lengths=(10, 100, 10_000),
        input_until=3.0,
        input_steps=12,
    ),
    parts=[
        Part("tube", tube, lambda config: list(KINDS)),
        Part(
            "ends",
            ends,
            lambda config: product(config.end_covariances, config.end_dims),
            along("cell", name="{}, d = {}".format),
        ),
        Part("excess", excess, lambda config: config.excess_dims, stacked("dim")),
        Part("drift", drift),
        Part("inputs", inputs, lambda config: config.inputs, stacked("inputs")),
    ],
    rules=RULES,
    figures=FIGURES,
    claims=claims("C5", "C6", "C7", "E2"),
    variables=variables("training"),
)
