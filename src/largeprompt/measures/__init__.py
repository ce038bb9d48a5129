"""Probability measures that know their cumulant generating function, and hence what attention makes of them."""

from largeprompt.measures.affine import AffineImage
from largeprompt.measures.atomic import AtomicMeasure
from largeprompt.measures.base import Measure
from largeprompt.measures.discrete import Discrete
from largeprompt.measures.empirical import Empirical
from largeprompt.measures.gaussian import Gaussian
from largeprompt.measures.generalised_normal import GeneralisedNormal, GeneralisedNormalLaw
from largeprompt.measures.ladder import cumulant_ladder, ladder_radius
from largeprompt.measures.laplace import Laplace, LaplaceLaw
from largeprompt.measures.logconcave import LogConcaveLaw
from largeprompt.measures.lognormal import LogNormal, LogNormalLaw
from largeprompt.measures.markov import MarkovChain, sample_chains
from largeprompt.measures.mixture import GaussianMixture
from largeprompt.measures.product import Product, ProductMeasure, ScalarLaw
from largeprompt.measures.quasi import sobol_points
from largeprompt.measures.rademacher import Rademacher, RademacherLaw
from largeprompt.measures.rademacher_sum import RademacherSum, RademacherSumLaw
from largeprompt.measures.rules import gauss_rule, product_rule
from largeprompt.measures.running import RunningTilt
from largeprompt.measures.skew_normal import SkewNormal, SkewNormalLaw
from largeprompt.measures.sphere import Sphere
from largeprompt.measures.student import StudentT, StudentTLaw
from largeprompt.measures.tilted import Tilted
from largeprompt.measures.uniform import Uniform, UniformLaw

__all__ = [
    "AffineImage",
    "AtomicMeasure",
    "Discrete",
    "Empirical",
    "Gaussian",
    "GaussianMixture",
    "GeneralisedNormal",
    "GeneralisedNormalLaw",
    "Laplace",
    "LaplaceLaw",
    "LogConcaveLaw",
    "LogNormal",
    "LogNormalLaw",
    "MarkovChain",
    "Measure",
    "Product",
    "ProductMeasure",
    "Rademacher",
    "RademacherLaw",
    "RademacherSum",
    "RademacherSumLaw",
    "RunningTilt",
    "ScalarLaw",
    "SkewNormal",
    "SkewNormalLaw",
    "Sphere",
    "StudentT",
    "StudentTLaw",
    "Tilted",
    "Uniform",
    "UniformLaw",
    "cumulant_ladder",
    "gauss_rule",
    "ladder_radius",
    "product_rule",
    "sample_chains",
    "sobol_points",
]
