"""Attention as an operator on probability measures."""

from largeprompt.attention.error_bar import ErrorBar
from largeprompt.attention.operators import (
    Attention,
    LinearAttention,
    SoftmaxAttention,
    affine_limit,
)

__all__ = ["Attention", "ErrorBar", "LinearAttention", "SoftmaxAttention", "affine_limit"]
