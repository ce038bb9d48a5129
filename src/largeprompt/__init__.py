"""largeprompt: what softmax attention does to a prompt, seen as a probability measure.

- Tokens: Gaussian, GaussianMixture, Empirical, Discrete, Rademacher, Uniform, Laplace, StudentT,
  Sphere, Product; Measure, for a law of your own; as_measure, for laws of PyTorch, SciPy and
  scikit-learn. More in lp.measures and lp.scalar.
- Attention: SoftmaxAttention (with an error bar for a real prompt), LinearAttention, Attention;
  affine_limit.
- Finite prompts: finite_prompt -> FinitePromptLaw and weight_moment are exact; certificate and
  jacobian_certificate -> Certificate are proved bounds; sample_prompts -> PromptSamples are drawn.
  More in lp.law.
- Lengths: prompt_length -> PromptLength, how long is long enough; query_average, over random
  queries; length_scaling and output_scale, how attention should change with length.
- In-context learning: LinearRegression, Task; gradient_flow, gradient_descent,
  stochastic_gradient_descent -> Trajectory. More in lp.training.
- Layers on layers: lp.depth.
- Transformers: lp.audit.
- Errors: LargePromptError, InvalidArgumentError, TiltDomainError, NoMomentError.

Names are imported when they are first used, so that ``import largeprompt`` does not wait for
PyTorch.
"""

import lazy_loader

# the names are listed in __init__.pyi
_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__version__ = "0.5.0"


def __getattr__(name: str) -> object:
    if name in __all__:
        return _load(name)
    import difflib

    near = difflib.get_close_matches(name, __all__, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise AttributeError(f"module 'largeprompt' has no attribute {name!r}{hint}")
