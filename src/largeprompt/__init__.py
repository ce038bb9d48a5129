"""largeprompt: what softmax attention does to a prompt, seen as a probability measure.

Measures        Gaussian, GaussianMixture, Empirical, Discrete, Rademacher, Uniform, Laplace, StudentT, Sphere, Product
Operators       SoftmaxAttention, LinearAttention, affine_limit
To extend       Measure (any law), ScalarLaw (one coordinate), largeprompt.testing (the checks that every law passes)
Errors          LargePromptError and its kinds: InvalidArgumentError, TiltDomainError, NoMomentError
"""

from largeprompt.attention import Attention, LinearAttention, SoftmaxAttention, affine_limit
from largeprompt.errors import InvalidArgumentError, LargePromptError, NoMomentError, TiltDomainError
from largeprompt.measures import (
    Discrete,
    Empirical,
    Gaussian,
    GaussianMixture,
    Laplace,
    LaplaceLaw,
    Measure,
    Product,
    Rademacher,
    RademacherLaw,
    RunningTilt,
    ScalarLaw,
    Sphere,
    StudentT,
    StudentTLaw,
    Uniform,
    UniformLaw,
)

__version__ = "0.1.0"

__all__ = [
    "Attention",
    "Discrete",
    "Empirical",
    "Gaussian",
    "GaussianMixture",
    "InvalidArgumentError",
    "Laplace",
    "LaplaceLaw",
    "LargePromptError",
    "LinearAttention",
    "Measure",
    "NoMomentError",
    "Product",
    "Rademacher",
    "RademacherLaw",
    "RunningTilt",
    "ScalarLaw",
    "SoftmaxAttention",
    "Sphere",
    "StudentT",
    "StudentTLaw",
    "TiltDomainError",
    "Uniform",
    "UniformLaw",
    "affine_limit",
]
