"""What one prompt says about its own sampling error."""

import dataclasses
import math

from torch import Tensor

from largeprompt import validation
from largeprompt.display.tables import plain

LARGEST_TAIL_INDEX = 0.5  # from here on the weights have no variance
FEWEST_CARRYING_TOKENS = 20.0  # a variance estimated from n terms is known to about 1/√n


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ErrorBar:
    """What one prompt says about its own sampling error: see :meth:`SoftmaxAttention.error_bar`.

    A tail index of 1/2 and more, or few carrying tokens, say that prompts of this law and length
    have no reliable error bar. The contrary does not follow: a prompt that lacks its largest tokens
    has the smaller tail index, the smaller error bar and the larger error (measured in
    docs/howto/real_prompt.md).

    Attributes
    ----------
    output
        T_L, what attention returns on the prompt, shape (..., o), where ... is the batch of heads,
        queries and prompts.
    covariance
        Sandwich estimate of Cov(T_L) over prompts of the same law and length, shape (..., o, o).
    effective_tokens
        1/Y = 1/Σ w_l², between 1 and L, shape (...): how many tokens carry the output.
    carrying_tokens
        Y²/Σ w_l⁴, between 1 and ``effective_tokens``, shape (...): how many tokens carry the
        covariance.
    tail_index
        Shape k of the largest softmax weights, shape (...); +inf where the prompt is too short,
        -inf where all are equal.
    length
        Number of tokens L.
    """

    output: Tensor
    covariance: Tensor
    effective_tokens: Tensor
    carrying_tokens: Tensor
    tail_index: Tensor
    length: int

    @property
    def standard_error(self) -> Tensor:
        """Square root of the diagonal of the covariance, shape (..., o)."""
        return self.covariance.diagonal(dim1=-2, dim2=-1).clamp_min(0).sqrt()

    @property
    def warning(self) -> str:
        """One sentence on queries of tail index >= 1/2 or fewer than 20 carrying tokens, or ''."""
        outside = (self.tail_index >= LARGEST_TAIL_INDEX) | (
            self.carrying_tokens < FEWEST_CARRYING_TOKENS
        )
        if not bool(outside.any()):
            return ""
        heaviest, fewest = (
            float(self.tail_index[outside].max()),
            float(self.carrying_tokens[outside].min()),
        )
        size = f"{self.length} tokens, {plain(fewest, 3)} of which carry the covariance"
        if heaviest == math.inf:
            reason = f"there are too few tokens to judge the tail of the weights ({size})"
        elif heaviest >= LARGEST_TAIL_INDEX:
            reason = (
                f"the largest weights have tail index {heaviest:.2g} >= {LARGEST_TAIL_INDEX}: a "
                f"second moment is missing or the prompt is too short ({size})"
            )
        else:
            reason = (
                f"the covariance rests on fewer than {FEWEST_CARRYING_TOKENS:.0f} tokens ({size})"
            )
        return (
            f"{int(outside.sum())} of {outside.numel()} queries: {reason}, so prompts like this "
            "one have no reliable error bar"
        )

    def __repr__(self) -> str:
        shape, worst = validation.shape_text(self.output.shape), ""
        if self.tail_index.numel():
            heaviest = float(self.tail_index.max())
            words = {math.inf: "too short for a tail_index", -math.inf: "largest weights all equal"}
            tail = words.get(heaviest, f"tail_index <= {heaviest:.2g}")
            worst = f", {tail}, carrying_tokens >= {plain(self.carrying_tokens.detach().min(), 3)}"
        return f"ErrorBar(output={shape}, length={self.length}{worst})"
