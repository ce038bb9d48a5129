"""Averages over contexts: Sobol points, weights that make them exact for chosen functions, and
rules exact on polynomials.
"""

import dataclasses

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures import Gaussian, sobol_points
from largeprompt.measures.numerics.sobol import MOST_POINTS


@dataclasses.dataclass(frozen=True)
class SobolAverage:
    """How averages over contexts are taken: scrambled Sobol points with equal weights.

    Parameters
    ----------
    points
        How many, a power of two.
    seed
        Of the scrambling: different seeds give independent averages.

    Examples
    --------
    >>> task = lp.LinearRegression([[1.0]], [[1.0]], 0.1)
    >>> attention = lp.SoftmaxAttention([[1.0, 0.0], [0.0, 0.0]], [[0.0, 1.0]])
    >>> print(f"{float(task.risk(attention, 10, average=lp.training.SobolAverage(points=1024, seed=1))):.3f}")
    0.219
    """

    points: int = 4096
    seed: int = 0

    def __post_init__(self) -> None:
        points = validation.integer("points", self.points, maximum=MOST_POINTS)
        if points & (points - 1):
            raise InvalidArgumentError(
                "points", str(points), "a power of two", f"Use {1 << points.bit_length()}."
            )
        object.__setattr__(self, "points", points)
        object.__setattr__(self, "seed", validation.integer("seed", self.seed, minimum=0))

    def normal(self, dim: int) -> Tensor:
        """The points, of the law N(0, I), shape (points, dim)."""
        law = Gaussian(torch.zeros(dim, dtype=torch.float64), torch.eye(dim, dtype=torch.float64))
        return sobol_points(law, self.points, self.seed)

    @property
    def weights(self) -> Tensor:
        """Their weights, shape (points,)."""
        return torch.full((self.points,), 1 / self.points, dtype=torch.float64)


AVERAGE = SobolAverage()


def quartic_points(dim: int) -> tuple[Tensor, Tensor]:
    """2d² + 1 points, exact up to degree five: 0, ±√(d+2) e_i and √((d+2)/2)(±e_i ± e_j).

    Weights 2/(d+2), (4-d)/(2(d+2)²) and 1/(d+2)²; some are negative for d > 4, so that the rule is
    for polynomials alone.
    """
    eye = torch.eye(dim, dtype=torch.float64)
    axes = (dim + 2) ** 0.5 * eye
    i, j = torch.triu_indices(dim, dim, 1)
    pairs = [(a * eye[i] + b * eye[j]) * ((dim + 2) / 2) ** 0.5 for a in (1, -1) for b in (1, -1)]
    points = torch.cat([torch.zeros(1, dim, dtype=torch.float64), axes, -axes, *pairs])
    weights = torch.full((len(points),), 1 / (dim + 2) ** 2, dtype=torch.float64)
    weights[0], weights[1 : 2 * dim + 1] = 2 / (dim + 2), (4 - dim) / (2 * (dim + 2) ** 2)
    return points, weights
