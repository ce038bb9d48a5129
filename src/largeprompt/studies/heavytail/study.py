"""N3: what heavy tails do to a softmax layer, and where the infinite-prompt picture breaks."""

import math

from largeprompt.runs.study import Part, Study, stacked
from largeprompt.studies.claims import claims
from largeprompt.studies.heavytail.config import HeavyTailConfig
from largeprompt.studies.heavytail.figures import FIGURES
from largeprompt.studies.heavytail.parts import breakdown, law_with_tilts, laws
from largeprompt.studies.heavytail.rules import RULES
from largeprompt.studies.heavytail.training import train
from largeprompt.studies.variables import labels

LABELS = {  # what the variables of the dataset are, and their units
    "breakdown": "degrees of freedom at which prompts break",
    "lasting": "length from which prompts of these degrees of freedom break [tokens]",
    "diverged": "whether the run diverged",
    "run_risk": "population risk at the end of the run, exact",
    "least_risk": "least risk of the layer, exact",
    "descent_risk": "risk after exact gradient descent",
    "curve": "expected sum of squared weights, exact",
    "asymptote": "expected sum of squared weights as L grows",
    "exact": "expected sum of squared weights at the drawn lengths, exact",
    "variance": "variance of the sum of squared weights, exact",
    "sampled": "mean sum of squared weights over drawn prompts",
    "error": "median distance of drawn outputs to the affine read-out",
    "of_largest": "median of the output over the largest token",
    "replicas": "number of prompts drawn",
    "breakdown_tilt": "tilt u of the breakdown",
    "grid": "prompt length of the exact curves [tokens]",
    "lasting_df": "degrees of freedom",
    "training_df": "degrees of freedom of the inputs",
    "df": "degrees of freedom",
}

STUDY = Study(
    name="heavytail",
    title="Heavy tails: where the infinite prompt breaks",
    question="How heavy may the tails of the tokens be before a long prompt is read through a few "
    "tokens, and what is computed then?",
    method="Student-t tokens from df = inf to 1, and Laplace tokens. Exact integration gives the "
    "expected Σ w² at every length; drawn prompts check it. A law breaks where Σ w² is twice that "
    "of Gaussian tokens. SGD on drawn prompts of in-context regression with one Student-t input "
    "is compared with exact gradient descent.",
    config=HeavyTailConfig,
    quick=HeavyTailConfig(
        tilts=(1.0,),
        laplace_tilts=(0.5, 1.1, 2.5),
        tokens=400_000,
        per_decade=2,
        finest=10,
        training_dfs=(math.inf, 4.0, 2.0),
        training_length=30,
        steps=400,
    ),
    parts=[  # in an order that keeps two workers busy to the end
        Part("training, df", train, lambda config: config.training_dfs, stacked("training_df")),
        Part("breakdown, u", breakdown, lambda config: config.tilts, stacked("breakdown_tilt")),
        Part("law", law_with_tilts, lambda config: list(laws(config)), stacked("case")),
    ],
    rules=RULES,
    figures=FIGURES,
    claims=claims("N3"),
    variables=labels(LABELS),
)
