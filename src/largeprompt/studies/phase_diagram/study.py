"""The three regimes over score variance and prompt length, with the effective number of tokens."""

from largeprompt.runs.study import Part, Study
from largeprompt.studies.claims import claims
from largeprompt.studies.phase_diagram.figures import FIGURES
from largeprompt.studies.phase_diagram.parts import PhaseDiagramConfig, grid
from largeprompt.studies.phase_diagram.rules import RULES
from largeprompt.studies.variables import variables

STUDY = Study(
    "phase_diagram",
    "The regimes of a finite prompt",
    "How many tokens does softmax attention read, and where does it stop to average?",
    "The exact effective number of tokens 1/E[Σ w²] is computed on a grid of score variances and "
    "lengths. Regimes are named twice, by σ/√(2 ln L) and by effective tokens against √L and √(π "
    "ln L). The two namings are compared point by point.",
    PhaseDiagramConfig,
    PhaseDiagramConfig(variances=41, lengths=31),
    parts=[Part("grid", grid)],
    rules=RULES,
    figures=FIGURES,
    claims=claims("C3"),
    variables=variables("phase_diagram"),
)
