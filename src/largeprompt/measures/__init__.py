"""Probability measures that know their cumulant generating function, and hence what attention makes
of them.
"""

from largeprompt.measures import scalar
from largeprompt.measures.base import Measure
from largeprompt.measures.chain import MarkovChain
from largeprompt.measures.finite.atoms import AtomicMeasure
from largeprompt.measures.finite.laws import Discrete, Empirical
from largeprompt.measures.foreign import as_measure
from largeprompt.measures.gaussian import Gaussian
from largeprompt.measures.mixture import GaussianMixture
from largeprompt.measures.numerics.ladder import cumulant_ladder
from largeprompt.measures.numerics.rules import gauss_rule
from largeprompt.measures.numerics.sobol import sobol_points
from largeprompt.measures.numerics.special import log_gamma
from largeprompt.measures.running import RunningTilt
from largeprompt.measures.scalar import *  # noqa: F403
from largeprompt.measures.sphere import Sphere
from largeprompt.measures.wrapped import AffineImage, Tilted

__all__ = [
    "AffineImage",
    "AtomicMeasure",
    "Discrete",
    "Empirical",
    "Gaussian",
    "GaussianMixture",
    "MarkovChain",
    "Measure",
    "RunningTilt",
    "Sphere",
    "Tilted",
    "as_measure",
    "cumulant_ladder",
    "gauss_rule",
    "log_gamma",
    "sobol_points",
]
__all__ += scalar.__all__
