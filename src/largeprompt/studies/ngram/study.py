"""Does the large-prompt picture hold for in-context Markov chains, whose tokens are dependent and
not Gaussian?
"""

from largeprompt.runs.study import Part, Study, along, side_by_side, stacked
from largeprompt.studies.claims import claims
from largeprompt.studies.ngram.config import NgramConfig, case_name
from largeprompt.studies.ngram.figures import FIGURES
from largeprompt.studies.ngram.learning import risks, training
from largeprompt.studies.ngram.paths import controls, convergence, mixing, operator
from largeprompt.studies.ngram.rules import RULES
from largeprompt.studies.variables import variables

STUDY = Study(
    "ngram",
    "In-context Markov chains: dependent tokens that are not Gaussian",
    "Does the large-prompt picture hold for in-context n-grams, and what replaces the linear "
    "operator?",
    "Paths of random chains are read by a head that scores a match of the context by β. The limit "
    "is a discrete tilt; the distance to it is predicted through the chain's fundamental matrix "
    "and, for chains with few contexts, known exactly at every length by transfer matrices. β is "
    "trained by gradient flow on the infinite prompt, on the exact risk of each length and on "
    "drawn prompts. The head is set beside the empirical n-gram, additive smoothing and the "
    "posterior mean.",
    NgramConfig,
    NgramConfig(
        cases=((3, 1), (10, 1), (3, 2), (3, 3)),
        lengths=(32, 128, 256, 512, 1024),
        replicas=1000,
        exact_contexts=10,
        exact_queries=3,
        mixing_alphabet=3,
        mixing_betas=(0.0, 2.0, 8.0),
        holdings=(0.0, 0.8, 0.95),
        mixing_replicas=1000,
        control_replicas=1000,
        operator_betas=(0.1, 1.0, 4.0, 12.0),
        operator_queries=5,
        training_alphabets=(3, 2),
        training_chains=1,
        training_lengths=(128, 512, 2048),
        training_replicas=500,
        times=25,
        batches=5,
        risk_concentrations=(1.0,),
        risk_chains=100,
        risk_lengths=(32, 128, 512),
        risk_betas=(0.0, 2.0, 4.0, 6.0, 8.0),
    ),
    parts=[  # the longest first
        Part(
            "training",
            training,
            lambda config: range(1, len(config.training_alphabets) + 1),
            stacked("training_order"),
        ),
        Part("mixing", mixing),
        Part(
            "chain",
            convergence,
            over=lambda config: config.cases,
            join=along("case", name=case_name),
        ),
        Part(
            "risks",
            risks,
            over=lambda config: config.risk_concentrations,
            join=stacked("concentration"),
        ),
        Part("controls", controls),
        Part("operator", operator),
    ],
    rules=RULES,
    figures=FIGURES,
    claims=claims("C5", "Q3"),
    variables=variables("ngram"),
    combine=lambda config, parts: side_by_side(config, parts).assign(
        tube_until=config.tube_until, batches=config.batches
    ),
)
