"""Averages over contexts by Sobol points."""

import dataclasses

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures.numerics.sobol import MOST_POINTS, normal_points


@dataclasses.dataclass(frozen=True)
class SobolAverage:
    """Scrambled Sobol points with equal weights, for averages over contexts.

    Parameters
    ----------
    points
        How many, a power of two.
    seed
        Of the scrambling: different seeds give independent averages.

    Examples
    --------
    >>> lp.training.SobolAverage(points=1024, seed=1).normal(3).shape
    torch.Size([1024, 3])
    """

    points: int = 4096
    seed: int = 0

    def __post_init__(self) -> None:
        points = validation.integer("points", self.points, maximum=MOST_POINTS)
        if points & (points - 1):
            raise InvalidArgumentError(
                "points", str(points), "a power of two", f"Use {1 << points.bit_length()}."
            )
        validation.store(self, points=points, seed=validation.integer("seed", self.seed, minimum=0))

    def normal(self, dim: int) -> Tensor:
        """The points, of the law N(0, I), shape (points, dim)."""
        return normal_points(dim, self.points, self.seed)

    @property
    def weights(self) -> Tensor:
        """Their weights, shape (points,)."""
        return torch.full((self.points,), 1 / self.points, dtype=torch.float64)


AVERAGE = SobolAverage()  # what every function takes when none is given
