"""largeprompt: what softmax attention does to a prompt, seen as a probability measure.

Measures         Gaussian, GaussianMixture, Empirical, Discrete, Rademacher, Uniform, Laplace, StudentT, Sphere, Product
Operators        SoftmaxAttention (with error_bar for a real prompt), LinearAttention, affine_limit
Finite prompts   finite_prompt (exact), weight_moment, regime; certificate, jacobian_certificate (proved bounds); sample_prompts
In-context       LinearRegression, GaussianTask (exact risks); gradient_flow, tube, gradient_descent,
                 stochastic_gradient_descent
Planning         prompt_length (how long is long enough), query_average (mean over random queries)
To extend        Measure (any law), ScalarLaw (one coordinate), largeprompt.testing (the checks that every law passes)
Errors           LargePromptError and its kinds: InvalidArgumentError, TiltDomainError, NoMomentError
"""

from largeprompt.attention import Attention, ErrorBar, LinearAttention, SoftmaxAttention, affine_limit
from largeprompt.certificate import Certificate, certificate, jacobian_certificate
from largeprompt.errors import InvalidArgumentError, LargePromptError, NoMomentError, TiltDomainError
from largeprompt.law import FinitePromptLaw, finite_prompt, regime, weight_moment, weight_moments
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
from largeprompt.planning import PromptLength, QueryAverage, prompt_length, query_average
from largeprompt.sampling import PromptSamples, sample_prompts
from largeprompt.training import (
    Contexts,
    Factorised,
    GaussianTask,
    LinearRegression,
    Trajectory,
    Tube,
    gradient_descent,
    gradient_flow,
    isotropic_optimum,
    stochastic_gradient_descent,
    tube,
)

__version__ = "0.3.0"

__all__ = [
    "Attention",
    "Certificate",
    "Contexts",
    "Discrete",
    "Empirical",
    "ErrorBar",
    "Factorised",
    "FinitePromptLaw",
    "Gaussian",
    "GaussianMixture",
    "GaussianTask",
    "InvalidArgumentError",
    "Laplace",
    "LaplaceLaw",
    "LargePromptError",
    "LinearAttention",
    "LinearRegression",
    "Measure",
    "NoMomentError",
    "Product",
    "PromptLength",
    "PromptSamples",
    "QueryAverage",
    "Rademacher",
    "RademacherLaw",
    "RunningTilt",
    "ScalarLaw",
    "SoftmaxAttention",
    "Sphere",
    "StudentT",
    "StudentTLaw",
    "TiltDomainError",
    "Trajectory",
    "Tube",
    "Uniform",
    "UniformLaw",
    "affine_limit",
    "certificate",
    "finite_prompt",
    "gradient_descent",
    "gradient_flow",
    "isotropic_optimum",
    "jacobian_certificate",
    "prompt_length",
    "query_average",
    "regime",
    "sample_prompts",
    "stochastic_gradient_descent",
    "tube",
    "weight_moment",
    "weight_moments",
]
