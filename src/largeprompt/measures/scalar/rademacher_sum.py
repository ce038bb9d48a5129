"""Sums of signs: bounded laws that become Gaussian as the number of terms grows."""

import dataclasses
import math

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.measures.numerics.special import sign_derivatives
from largeprompt.measures.scalar.product import IidProduct, ScalarLaw


@dataclasses.dataclass(frozen=True)
class RademacherSumLaw(ScalarLaw):
    """Sum of k = ``terms`` signs over √k: Λ(u) = k log cosh(u/√k), ∇Λ = √k tanh(u/√k)."""

    relative_precision = True
    terms: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "terms", int(validation.length("terms", self.terms)))

    @property
    def bound(self) -> float:
        return math.sqrt(self.terms)

    def cgf(self, u: Tensor) -> Tensor:
        return self.derivatives(u, 0)[0]

    def derivatives(self, u: Tensor, order: int) -> tuple[Tensor, ...]:
        found = sign_derivatives(u / self.bound, order)
        return tuple(slope * float(self.terms) ** (1 - i / 2) for i, slope in enumerate(found))

    def sample(self, u: Tensor, generator: torch.Generator) -> Tensor:
        count = torch.full_like(u, float(self.terms))
        ups = torch.binomial(count, torch.sigmoid(2 * u / self.bound), generator=generator)
        return (2 * ups - self.terms) / self.bound


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class RademacherSum(IidProduct):
    """Independent coordinates, each the sum of ``terms`` signs over √terms.

    Examples
    --------
    >>> lp.scalar.RademacherSum(1, terms=4).tilted_mean([2.0])
    tensor([1.5232], dtype=torch.float64)
    """

    kind = RademacherSumLaw
    terms: int
