"""Signs: the simplest law that is not Gaussian, whose limit is tanh and not affine."""

import dataclasses

import torch
from torch import Tensor

from largeprompt.measures.numerics.special import sign_derivatives
from largeprompt.measures.scalar.product import IidProduct, ScalarLaw, uniform


@dataclasses.dataclass(frozen=True)
class RademacherLaw(ScalarLaw):
    """±1 with probability 1/2 each: Λ(u) = log cosh u, ∇Λ = tanh u."""

    bound = 1.0
    relative_precision = True

    def cgf(self, u: Tensor) -> Tensor:
        return sign_derivatives(u, 0)[0]

    def derivatives(self, u: Tensor, order: int) -> tuple[Tensor, ...]:
        return sign_derivatives(u, order)

    def sample(self, u: Tensor, generator: torch.Generator) -> Tensor:
        return torch.where(uniform(u, generator) < torch.sigmoid(2 * u), 1.0, -1.0).to(u.dtype)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)  # its own __init__, which errors name
class Rademacher(IidProduct):
    """Independent signs in R^d: ∇Λ(u)_i = tanh u_i.

    Examples
    --------
    >>> lp.Rademacher(2).tilted_mean([0.5, -10.0])
    tensor([ 0.4621, -1.0000], dtype=torch.float64)
    """

    kind = RademacherLaw
    dim: int = 1
