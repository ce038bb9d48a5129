"""Residual self-attention: its infinite-prompt limit, and the noise of a finite prompt."""

from largeprompt.depth.limit import DeepLimit, deep_limit
from largeprompt.depth.noise import DeepNoise, breaking_layer, deep_noise
from largeprompt.depth.stack import Normalization, ResidualStack

__all__ = [
    "DeepLimit",
    "DeepNoise",
    "Normalization",
    "ResidualStack",
    "breaking_layer",
    "deep_limit",
    "deep_noise",
]
