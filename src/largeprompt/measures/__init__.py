"""Probability measures that know their cumulant generating function, and hence what attention makes of them."""

from largeprompt.measures.affine import AffineImage
from largeprompt.measures.base import Measure
from largeprompt.measures.chain import MarkovChain, sample_chains
from largeprompt.measures.finite.atoms import AtomicMeasure
from largeprompt.measures.finite.discrete import Discrete
from largeprompt.measures.finite.empirical import Empirical
from largeprompt.measures.gaussian import Gaussian
from largeprompt.measures.mixture import GaussianMixture
from largeprompt.measures.numerics.ladder import cumulant_ladder, ladder_radius
from largeprompt.measures.numerics.rules import gauss_rule, product_rule
from largeprompt.measures.numerics.sobol import sobol_points
from largeprompt.measures.running import RunningTilt
from largeprompt.measures.scalar.generalised_normal import GeneralisedNormal, GeneralisedNormalLaw
from largeprompt.measures.scalar.laplace import Laplace, LaplaceLaw
from largeprompt.measures.scalar.logconcave import LogConcaveLaw
from largeprompt.measures.scalar.lognormal import LogNormal, LogNormalLaw
from largeprompt.measures.scalar.product import Product, ProductMeasure, ScalarLaw
from largeprompt.measures.scalar.rademacher import Rademacher, RademacherLaw
from largeprompt.measures.scalar.rademacher_sum import RademacherSum, RademacherSumLaw
from largeprompt.measures.scalar.skew_normal import SkewNormal, SkewNormalLaw
from largeprompt.measures.scalar.student import StudentT, StudentTLaw
from largeprompt.measures.scalar.uniform import Uniform, UniformLaw
from largeprompt.measures.sphere import Sphere
from largeprompt.measures.tilted import Tilted

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
