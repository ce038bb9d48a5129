"""C3 averaged over a random query: at which power of L does the error fall, and does the predicted
exponent hold?
"""

from largeprompt.runs.study import Part, Study, along
from largeprompt.studies.claims import claims
from largeprompt.studies.exponent.figures import FIGURES
from largeprompt.studies.exponent.parts import ExponentConfig, errors, with_predictions
from largeprompt.studies.exponent.rules import RULES
from largeprompt.studies.variables import variables

STUDY = Study(
    "exponent",
    "The exponent for random queries",
    "At which power of L does the error fall when the query is random, and whose exponent is it?",
    "For Gaussian tokens and queries the exact error is averaged over the query by a radial "
    "quadrature, decade by decade of L. Its local slopes are compared with g(H) = min(1, √(1/H² + "
    "1/4) - 1/2), with 1/(1+H²) and with c2/H². Nothing is fitted; where logarithms hide the "
    "difference the study says so.",
    ExponentConfig,
    ExponentConfig(decades=(2, 6, 9, 10), squares=(0.15, 0.5, 1.0, 2.0, 4.0)),
    parts=[Part("errors", errors, over=lambda config: config.dims, join=along("dim"))],
    rules=RULES,
    figures=FIGURES,
    claims=claims("C3"),
    variables=variables("exponent"),
    combine=with_predictions,
)
