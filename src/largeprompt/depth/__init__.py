"""Layers on layers: residual self-attention, its infinite-prompt limit, and the noise of a finite
prompt in depth.
"""

from largeprompt.depth.limit import DeepLimit, deep_limit
from largeprompt.depth.noise import DeepNoise, breaking_layer, deep_noise
from largeprompt.depth.stack import Normalisation, ResidualStack

__all__ = [
    "DeepLimit",
    "DeepNoise",
    "Normalisation",
    "ResidualStack",
    "breaking_layer",
    "deep_limit",
    "deep_noise",
]
