"""Laplace coordinates of unit variance: exponential moments exist only for tilts below √2."""

import dataclasses
import math

import torch
from torch import Tensor

from largeprompt.measures.numerics.special import log1p
from largeprompt.measures.scalar.density import ScalarDensity
from largeprompt.measures.scalar.product import IidProduct, ScalarLaw, uniform

EDGE = math.sqrt(2)  # tilts from here on have no exponential moment


@dataclasses.dataclass(frozen=True)
class LaplaceLaw(ScalarLaw):
    """Density e^{-√2·abs(x)}/√2: Λ(u) = -log(1 - u²/2), ∇Λ = 2u/(2 - u²), for -√2 < u < √2."""

    domain = (-EDGE, EDGE)
    relative_precision = True

    def cgf(self, u: Tensor) -> Tensor:
        return -log1p(-(u**2) / 2)

    def derivatives(self, u: Tensor, order: int) -> tuple[Tensor, ...]:
        q, r = u**2, 1 / (2 - u**2)
        slopes = (
            2 * u * r,
            (4 + 2 * q) * r**2,
            4 * u * (6 + q) * r**3,
            12 * (4 + 12 * q + q**2) * r**4,
        )
        return self.cgf(u), *slopes[:order]

    def density(self) -> ScalarDensity:
        from scipy import stats  # takes half a second, and few need it

        return ScalarDensity.of(stats.laplace(scale=1 / EDGE), kinks=(0.0,), width=1 / EDGE)

    def sample(self, u: Tensor, generator: torch.Generator) -> Tensor:
        side, size = uniform(u, generator), -torch.log1p(-uniform(u, generator))
        if not bool(u.any()):
            return torch.where(side < 0.5, size, -size) / EDGE
        return torch.where(side < (EDGE + u) / (2 * EDGE), size / (EDGE - u), -size / (EDGE + u))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)  # its own __init__, which errors name
class Laplace(IidProduct):
    """Independent Laplace coordinates of unit variance: tilts have entries of size below √2.

    Examples
    --------
    >>> lp.Laplace(1).tilted_mean([1.0])
    tensor([2.], dtype=torch.float64)
    """

    kind = LaplaceLaw
    dim: int = 1
