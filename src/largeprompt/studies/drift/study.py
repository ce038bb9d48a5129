"""Do L → ∞ and t → ∞ commute?"""

from largeprompt.runs.study import Part, Study
from largeprompt.studies.claims import claims
from largeprompt.studies.drift.figures import FIGURES
from largeprompt.studies.drift.parts import DriftConfig, flows
from largeprompt.studies.drift.rules import RULES
from largeprompt.studies.variables import variables

STUDY = Study(
    "drift",
    "The limits in L and t do not commute",
    "Does training on a long prompt, for a long time, end where training on the infinite prompt "
    "ends?",
    "Gradient flows on the exact risks of several lengths and of the infinite prompt run side by "
    "side, identity covariance, far beyond the time at which they look finished. The read-out b "
    "at the end is compared with the theorem's and with the optimum of each length, found without "
    "a flow.",
    DriftConfig,
    DriftConfig(until=3e3),
    parts=[Part("flow", flows)],
    rules=RULES,
    figures=FIGURES,
    claims=claims("C5", "C6"),
    variables=variables("drift"),
)
