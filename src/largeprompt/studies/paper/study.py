"""P1, the authors' own experiment: K, Q, V and a read-out trained apart, softmax against linear
attention, nineteen lengths.
"""

from itertools import product

from largeprompt.runs.study import Part, Study, along
from largeprompt.studies.claims import claims
from largeprompt.studies.covariances import KINDS
from largeprompt.studies.paper.config import SETTINGS, PaperConfig
from largeprompt.studies.paper.figures import FIGURES
from largeprompt.studies.paper.parts import flows, sgd
from largeprompt.studies.paper.rules import RULES
from largeprompt.studies.variables import variables

SGD_RUNS = ("attention", "sgd_length", "sgd_seed")

STUDY = Study(
    "paper",
    "The authors' experiment",
    "What do softmax and linear attention learn at nineteen prompt lengths, and how near is the "
    "result to Bayes?",
    "The authors' training (d = 5, K, Q, V and read-out apart, PyTorch's default start, 300,000 "
    "steps of 10⁻³) is followed by exact gradient flow to time 300, all lengths side by side, no "
    "prompt drawn. Both the intended task and the one of the released code are run. SGD on drawn "
    "prompts, as the authors ran it, is laid over the first part of the flow.",
    PaperConfig,
    PaperConfig(
        lengths=(10, 100, 1000),
        until=20.0,
        times=21,
        tolerance=1e-4,
        sgd_lengths=(10,),
        sgd_steps=2000,
    ),
    parts=[
        Part("flow", flows, lambda config: product(SETTINGS, KINDS), along("setting", "attention")),
        Part(
            "SGD",
            sgd,
            lambda config: product(KINDS, config.sgd_lengths, config.sgd_seeds),
            along(*SGD_RUNS),
        ),
    ],
    rules=RULES,
    figures=FIGURES,
    claims=claims("P1"),
    variables=variables("paper"),
)
