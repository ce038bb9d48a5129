"""What attention over a finite prompt is, exactly, at a cost that does not depend on its length.

The door is :func:`finite_prompt`: the law of the output over L tokens of any law, or over a path of a Markov chain. Behind it stand
a closed form for Gaussian tokens (:mod:`~largeprompt.law.gaussian`) and an engine for all others (:mod:`~largeprompt.law.engine`).
For other questions:

- moments of softmax weights over Gaussian scores: :func:`weight_moment`, :func:`weight_moments`, and :func:`collision_moments` for
  Y = Σ w² and Σ w³; with one token whose score is shifted: :func:`planted_moments`; of two heads over the same tokens:
  :func:`two_head_moments`, :func:`two_head_overlap`;
- the largest weight, and how Y varies, for scalar tokens with heavy tails: :func:`scalar_prompt`; any features of tokens with
  finitely many values: :func:`feature_moments`; four moments of the error of scalar tokens: :func:`error_moments`;
- paths: :func:`effective_length` (Gaussian, first order), :func:`chain_error` (given centre and end), :func:`chain_expansion`;
- :func:`regime`, whether many tokens are read or few.

All integrals over independent tokens are those of :mod:`largeprompt.law.quadrature`.
"""

from largeprompt.law.chain import ChainExpansion, chain_error, chain_expansion
from largeprompt.law.dependent import effective_length
from largeprompt.law.engine import error_moments
from largeprompt.law.finite import FinitePromptLaw, finite_prompt, finite_prompt_errors
from largeprompt.law.heavy_tails import ScalarPrompt, scalar_prompt
from largeprompt.law.moment import weight_moment, weight_moments
from largeprompt.law.nodes import feature_moments
from largeprompt.law.planted import PlantedMoments, planted_moments
from largeprompt.law.regime import regime
from largeprompt.law.statistics import CollisionMoments, collision_moments
from largeprompt.law.two_heads import two_head_moments, two_head_overlap

__all__ = [
    "ChainExpansion",
    "CollisionMoments",
    "FinitePromptLaw",
    "PlantedMoments",
    "ScalarPrompt",
    "chain_error",
    "chain_expansion",
    "collision_moments",
    "effective_length",
    "error_moments",
    "feature_moments",
    "finite_prompt",
    "finite_prompt_errors",
    "planted_moments",
    "regime",
    "scalar_prompt",
    "two_head_moments",
    "two_head_overlap",
    "weight_moment",
    "weight_moments",
]
