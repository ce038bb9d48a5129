"""The exact law of attention over a finite prompt, for Gaussian tokens and Gaussian mixtures."""

from largeprompt.law.finite import FinitePromptLaw, finite_prompt, finite_prompt_errors
from largeprompt.law.moment import weight_moment, weight_moments
from largeprompt.law.regime import regime

__all__ = ["FinitePromptLaw", "finite_prompt", "finite_prompt_errors", "regime", "weight_moment", "weight_moments"]
