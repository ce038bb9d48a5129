"""What every risk refuses: scores too large to have one, and other attention than softmax or
linear.
"""

import math

from largeprompt import validation
from largeprompt.attention import Attention, LinearAttention, SoftmaxAttention
from largeprompt.errors import InvalidArgumentError, LargePromptError

LARGEST_SCORE_VARIANCE = 2048.0  # softmax over 10^15 tokens is frozen from 70 on


class RiskError(LargePromptError):
    """A risk that is not finite, or that cannot be computed at such parameters."""


def check_scores(largest: float, most: float = LARGEST_SCORE_VARIANCE) -> None:
    """Refuse score variances that are not finite, or larger than any that a trained layer has."""
    if not largest <= most:
        given = (
            f"a score variance of {largest:.3g}"
            if math.isfinite(largest)
            else "parameters that are not finite"
        )
        raise RiskError(
            f"risk: {given}; risks are computed up to {most:.4g}. Use a smaller U; in training, a "
            "smaller step or start."
        )


def is_softmax(kind: type[Attention]) -> bool:
    """Whether a kind of attention is softmax, not linear; any other is refused."""
    if not (isinstance(kind, type) and issubclass(kind, SoftmaxAttention | LinearAttention)):
        raise InvalidArgumentError(
            "kind", validation.text(kind), "SoftmaxAttention or LinearAttention"
        )
    return issubclass(kind, SoftmaxAttention)
