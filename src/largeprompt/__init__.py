"""largeprompt: what softmax attention does to a prompt, seen as a probability measure.

Measures Gaussian, GaussianMixture, Empirical, Discrete, Rademacher, Uniform, Laplace, StudentT,
Sphere, Product;
                 Measure (any law of one's own); more in lp.scalar (one-coordinate laws) and
                 lp.measures (chains, rules, cumulants)
Attention SoftmaxAttention (with error_bar for a real prompt), LinearAttention, affine_limit;
Attention, ErrorBar Finite prompts finite_prompt -> FinitePromptLaw, weight_moment (exact);
certificate, jacobian_certificate -> Certificate (proved
                 bounds); sample_prompts -> PromptSamples (drawn); more in lp.law
Planning prompt_length -> PromptLength (how long is long enough), query_average -> QueryAverage
(mean over random queries) In-context LinearRegression, Task; gradient_flow, gradient_descent,
stochastic_gradient_descent -> Trajectory; more tasks,
                 dynamics, gaps and optima in lp.training
Layers lp.depth: residual self-attention, its limit, and the noise of a finite prompt in depth
Transformers lp.audit: which heads of a real model read only the moments of their prompt Errors
LargePromptError and its kinds: InvalidArgumentError, TiltDomainError, NoMomentError

Names are imported when they are first used, so that ``import largeprompt`` does not wait for
PyTorch.
"""

import lazy_loader

# the names are listed in __init__.pyi
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__version__ = "0.5.0"
