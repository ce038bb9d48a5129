"""C1, C2: is attention over Gaussian tokens affine in the limit, is it not so for other laws, and
is it one operator for both?
"""

from largeprompt.runs.study import Part, Study, along
from largeprompt.studies.claims import claims
from largeprompt.studies.limit.figures import FIGURES
from largeprompt.studies.limit.parts import LAWS, LimitConfig, errors, gap, identity, operator
from largeprompt.studies.limit.rules import RULES
from largeprompt.studies.variables import variables

STUDY = Study(
    "limit",
    "The infinite-prompt limit",
    "Is attention over an infinite Gaussian prompt affine, with which precision, and what is it "
    "for other laws?",
    "The operator is compared with quadratures that know nothing of cumulant generating "
    "functions: for random layers, d up to 200, singular covariances, non-zero means and "
    "mixtures. Laws that are not Gaussian are the controls, with gaps predicted. For six laws the "
    "exact law of a finite prompt gives its distance to the limit and to the affine map from L = "
    "1 to 10¹²; prompts are drawn as a check.",
    LimitConfig,
    LimitConfig(dims=(1, 2, 10, 50, 200), layers=4, points=25, drawn_lengths=(10, 100, 1000)),
    parts=[
        Part("identity", identity, over=lambda config: config.dims, join=along("dim")),
        Part("gap", gap),
        Part("operator", operator),
        Part("errors", errors, over=lambda config: LAWS, join=along("law")),
    ],
    rules=RULES,
    figures=FIGURES,
    claims=claims("C1", "C2"),
    variables=variables("limit"),
)
