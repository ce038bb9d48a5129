"""E3: covariances with spread eigenvalues, queries along weak and strong directions: which
constants hold, what σ² explains.
"""

from largeprompt.runs.study import Part, Study, along
from largeprompt.studies.anisotropy.figures import FIGURES
from largeprompt.studies.anisotropy.parts import AnisotropyConfig, random_queries, spectrum_errors
from largeprompt.studies.anisotropy.rules import RULES
from largeprompt.studies.claims import claims
from largeprompt.studies.variables import variables

STUDY = Study(
    "anisotropy",
    "Spread eigenvalues",
    "Which constants hold when the covariance is ill-conditioned, and what does the score variance "
    "explain?",
    "Gaussian tokens with several spectra of equal trace (condition numbers up to 10⁴, power "
    "laws, a spike) are read along weak, strong and mixed directions, all with the same score "
    "variances, by the exact law; drawn prompts check it. The paper's constants are fitted to "
    "each; errors for random queries of equal mean score variance are averaged by quadrature.",
    AnisotropyConfig,
    AnisotropyConfig(points=25, spikes=(0.05, 0.5, 0.95), decades=(2, 6, 12, 14)),
    parts=[
        Part(
            "spectrum", spectrum_errors, over=lambda config: config.spectra, join=along("spectrum")
        ),
        Part("random queries", random_queries),
    ],
    rules=RULES,
    figures=FIGURES,
    claims=claims("E3"),
    variables=variables("anisotropy"),
)
