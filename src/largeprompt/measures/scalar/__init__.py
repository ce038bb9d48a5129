"""Laws of one coordinate, one file each, and measures whose coordinates are independent."""

from largeprompt.measures.scalar.generalized_normal import GeneralizedNormal, GeneralizedNormalLaw
from largeprompt.measures.scalar.laplace import Laplace, LaplaceLaw
from largeprompt.measures.scalar.logconcave import LogConcaveLaw
from largeprompt.measures.scalar.lognormal import LogNormal, LogNormalLaw
from largeprompt.measures.scalar.product import Product, ProductMeasure, ScalarLaw
from largeprompt.measures.scalar.rademacher import Rademacher, RademacherLaw
from largeprompt.measures.scalar.rademacher_sum import RademacherSum, RademacherSumLaw
from largeprompt.measures.scalar.skew_normal import SkewNormal, SkewNormalLaw
from largeprompt.measures.scalar.student import StudentT, StudentTLaw
from largeprompt.measures.scalar.uniform import Uniform, UniformLaw

__all__ = [
    "GeneralizedNormal",
    "GeneralizedNormalLaw",
    "Laplace",
    "LaplaceLaw",
    "LogConcaveLaw",
    "LogNormal",
    "LogNormalLaw",
    "Product",
    "ProductMeasure",
    "Rademacher",
    "RademacherLaw",
    "RademacherSum",
    "RademacherSumLaw",
    "ScalarLaw",
    "SkewNormal",
    "SkewNormalLaw",
    "StudentT",
    "StudentTLaw",
    "Uniform",
    "UniformLaw",
]
