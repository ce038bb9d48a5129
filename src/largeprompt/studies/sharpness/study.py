"""How far above the truth the certificates are: bound over exact error, against L/ρ."""

from largeprompt.runs.study import Part, Study, stacked
from largeprompt.studies.claims import claims
from largeprompt.studies.sharpness.figures import FIGURES
from largeprompt.studies.sharpness.parts import LAWS, SharpnessConfig, ratios, signs
from largeprompt.studies.sharpness.rules import RULES
from largeprompt.studies.variables import variables

STUDY = Study(
    "sharpness",
    "How sharp the certificates are",
    "How far above the exact error is the proved bound, and from which length on does that not "
    "matter?",
    "The certificate is divided by the exact mean squared error for scalar Gaussian tokens and for "
    "two clusters, from L below ρ to "
    "10⁵ ρ, where ρ = e^(Λ(2u) - 2Λ(u)). Signs at L = 1, whose error is known, are the control.",
    SharpnessConfig,
    SharpnessConfig(points=21),
    parts=[
        Part("ratios", ratios, over=lambda config: LAWS, join=stacked("case")),
        Part("signs", signs),
    ],
    rules=RULES,
    figures=FIGURES,
    claims=claims("C3"),
    variables=variables("sharpness"),
)
