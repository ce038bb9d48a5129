"""What attention over a finite prompt is, exactly, at a cost that does not depend on its length.

- :func:`finite_prompt` is the one door: the law of the output over L tokens of any law, or over a
  path of a Markov chain. Behind it are a closed form for Gaussian tokens
  (:mod:`~largeprompt.law.gaussian`), transfer matrices for chains (:mod:`~largeprompt.law.chain`),
  and an engine for all other laws (:mod:`~largeprompt.law.engine`).
- :func:`weight_moment` gives moments of softmax weights over Gaussian scores,
  :func:`collision_moments` those of Y = Σ w².
- :func:`regime` names the regime: whether many tokens are read, or few.
"""

from largeprompt.law.finite import FinitePromptLaw, finite_prompt
from largeprompt.law.gaussian import CollisionMoments, collision_moments, regime
from largeprompt.law.weights import weight_moment

__all__ = [
    "CollisionMoments",
    "FinitePromptLaw",
    "collision_moments",
    "finite_prompt",
    "regime",
    "weight_moment",
]
