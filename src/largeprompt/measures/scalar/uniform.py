"""Uniform coordinates of unit variance."""

import dataclasses
import math

import torch
from torch import Tensor

from largeprompt.measures.numerics.special import interval_derivatives
from largeprompt.measures.scalar.product import IidProduct, ScalarLaw, uniform

HALF_WIDTH = math.sqrt(3)


@dataclasses.dataclass(frozen=True)
class UniformLaw(ScalarLaw):
    """Uniform on [-√3, √3]: Λ(u) = log(sinh(√3u)/(√3u)), ∇Λ = √3 coth(√3u) - 1/u."""

    bound = HALF_WIDTH
    relative_precision = True

    def cgf(self, u: Tensor) -> Tensor:
        return self.derivatives(u, 0)[0]

    def derivatives(self, u: Tensor, order: int) -> tuple[Tensor, ...]:
        return tuple(
            slope * HALF_WIDTH**i
            for i, slope in enumerate(interval_derivatives(HALF_WIDTH * u, order))
        )

    def sample(self, u: Tensor, generator: torch.Generator) -> Tensor:
        place = uniform(u, generator)
        if not bool(u.any()):
            return HALF_WIDTH * (2 * place - 1)
        rate = torch.where(u == 0, 1.0, u.abs())
        # distance to the favored end: an exponential of this rate, truncated
        distance = -torch.log1p(place * torch.expm1(-2 * HALF_WIDTH * rate)) / rate
        return torch.where(
            u == 0, HALF_WIDTH * (2 * place - 1), torch.sign(u) * (HALF_WIDTH - distance)
        )


@dataclasses.dataclass(frozen=True, eq=False, repr=False)  # its own __init__, which errors name
class Uniform(IidProduct):
    """Uniform on the cube [-√3, √3]^d, unit variance in each coordinate.

    Examples
    --------
    >>> lp.Uniform(1).tilted_mean([[0.1], [1e6]])
    tensor([[0.0998],
            [1.7320]], dtype=torch.float64)
    """

    kind = UniformLaw
    dim: int = 1
