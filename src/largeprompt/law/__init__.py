"""The exact law of attention over a finite prompt, for Gaussian tokens and Gaussian mixtures."""

from largeprompt.law.atomic import atomic_errors, read_out_moments, scalar_error_moments
from largeprompt.law.chain import ChainExpansion, chain_error, chain_expansion
from largeprompt.law.dependent import effective_length
from largeprompt.law.finite import FinitePromptLaw, finite_prompt, finite_prompt_errors
from largeprompt.law.moment import weight_moment, weight_moments
from largeprompt.law.planted import PlantedMoments, planted_moments
from largeprompt.law.regime import regime
from largeprompt.law.scalar_weights import ScalarPrompt, scalar_prompt
from largeprompt.law.two_heads import two_head_moments, two_head_overlap

__all__ = [
    "ChainExpansion",
    "FinitePromptLaw",
    "PlantedMoments",
    "ScalarPrompt",
    "atomic_errors",
    "chain_error",
    "chain_expansion",
    "effective_length",
    "finite_prompt",
    "finite_prompt_errors",
    "planted_moments",
    "read_out_moments",
    "regime",
    "scalar_error_moments",
    "scalar_prompt",
    "two_head_moments",
    "two_head_overlap",
    "weight_moment",
    "weight_moments",
]
