"""Laws whose score has real nodes: what the exact law of a finite prompt asks of them."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from largeprompt.errors import InvalidArgumentError

# standard deviations on either side of the center of a normal variable: 1e-18 of it lies outside
NORMAL_REACH = 8.8
# of the scores: the trapezoid rule errs by e^{-π²/SCORE_STEP} for the kernels of softmax
SCORE_STEP = 0.14
MOST_SCORE_NODES = 20_000  # ten seconds of work

Array = NDArray[np.float64]


class ScoreNodes(NamedTuple):
    """Nodes j of probability p_j, with the score s_j and the mean and covariance of the token.

    Covariances are multiples ``scale`` (node,) of a matrix ``spread`` (d, d); none for atoms. Given
    the node tokens are Gaussian, or with ``sphere`` uniform on a sphere: κ4::AB is its entry times
    tr CA tr CB + 2 tr CACB.
    """

    log_mass: Array  # log p_j
    scores: Array  # s_j = u·x
    mean: Array  # (node, d)
    spread: Array | None = None
    scale: Array | None = None
    sphere: Array | None = None


@runtime_checkable
class HasScoreNodes(Protocol):
    """A law that declares real nodes of its score, from which finite prompts are exact."""

    def _score_nodes(self, u: Tensor, top: float) -> Sequence[ScoreNodes]:
        """Groups of nodes along the tilt u, shape (d,), for scores up to ``top``, tilted once."""


def check_scores(widest: float) -> None:
    """Refuse scores that are so far apart that no grid holds them."""
    most = MOST_SCORE_NODES * SCORE_STEP
    if not widest <= most:
        given, allowed = f"scores {widest:.3g} apart", f"scores at most {most:g} apart"
        remedy = "Use smaller parameters, or sample_prompts(...)."
        raise InvalidArgumentError("z", given, allowed, remedy)
