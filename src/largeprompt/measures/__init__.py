"""Probability measures that know their cumulant generating function, and hence what attention makes of them."""

from largeprompt.measures.affine import AffineImage
from largeprompt.measures.atomic import AtomicMeasure
from largeprompt.measures.base import Measure
from largeprompt.measures.discrete import Discrete
from largeprompt.measures.empirical import Empirical
from largeprompt.measures.gaussian import Gaussian
from largeprompt.measures.laplace import Laplace, LaplaceLaw
from largeprompt.measures.mixture import GaussianMixture
from largeprompt.measures.product import Product, ProductMeasure, ScalarLaw
from largeprompt.measures.quasi import sobol_points
from largeprompt.measures.rademacher import Rademacher, RademacherLaw
from largeprompt.measures.running import RunningTilt
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
    "Laplace",
    "LaplaceLaw",
    "Measure",
    "Product",
    "ProductMeasure",
    "Rademacher",
    "RademacherLaw",
    "RunningTilt",
    "ScalarLaw",
    "Sphere",
    "StudentT",
    "StudentTLaw",
    "Tilted",
    "Uniform",
    "UniformLaw",
    "sobol_points",
]
