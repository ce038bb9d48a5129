"""Attention as an operator on probability measures."""

from largeprompt.attention.depth import DeepLimit, deep_limit
from largeprompt.attention.error_bar import ErrorBar
from largeprompt.attention.operators import Attention, LinearAttention, SoftmaxAttention, affine_limit
from largeprompt.attention.stack import Normalisation, ResidualStack

__all__ = [
    "Attention",
    "DeepLimit",
    "ErrorBar",
    "LinearAttention",
    "Normalisation",
    "ResidualStack",
    "SoftmaxAttention",
    "affine_limit",
    "deep_limit",
]
