"""Generalized normal coordinates: from heavier than Laplace through Gaussian towards uniform."""

import dataclasses
import functools
import math

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures.scalar.laplace import LaplaceLaw
from largeprompt.measures.scalar.logconcave import LogConcaveLaw
from largeprompt.measures.scalar.product import IidProduct, ScalarLaw, uniform

CLOSE = 0.4  # relative offset below which the fall is a series, of 24 terms


@dataclasses.dataclass(frozen=True)
class GeneralizedNormalLaw(LogConcaveLaw):
    """Density β/(2aΓ(1/β)) e^{-abs(x/a)^β} with a² = Γ(1/β)/Γ(3/β): mean 0, variance 1.

    β = ``shape`` > 1: Λ(u) by quadrature around the mode a (au/β)^{1/(β-1)} of the tilt. β < 1:
    Λ = +∞ for u ≠ 0. β = 1 is :class:`LaplaceLaw`.
    """

    shape: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", validation.positive("shape", self.shape))
        if self.shape == 1:
            allowed, remedy = "a positive number other than 1", "Use LaplaceLaw(), the same law."
            raise InvalidArgumentError("shape", "1", allowed, remedy)
        if not 0.1 <= self.shape <= 1000:
            remedy = "Far beyond 1000 the law is UniformLaw() to within 1e-3."
            raise InvalidArgumentError("shape", f"{self.shape:g}", "0.1 to 1000", remedy)

    @property
    def width(self) -> float:
        """a, which makes the variance one."""
        return math.exp((math.lgamma(1 / self.shape) - math.lgamma(3 / self.shape)) / 2)

    @property
    def domain(self) -> tuple[float, float]:
        if self.shape < 1:
            return 0.0, 0.0
        # beyond, the cgf leaves double precision (shapes near 1 only)
        farthest = math.log(1e150 / self.width)
        log_edge = math.log(self.shape / self.width) + (self.shape - 1) * farthest
        edge = math.exp(log_edge) if log_edge < 700 else math.inf
        return -edge, edge

    def mode(self, u: Tensor) -> Tensor:
        size = torch.exp(torch.log(self.width * u.abs() / self.shape) / (self.shape - 1))
        return torch.sign(u) * self.width * torch.where(u == 0, 0.0, size)

    def height(self, u: Tensor, mode: Tensor) -> Tensor:
        constant = math.log(self.shape / (2 * self.width)) - math.lgamma(1 / self.shape)
        return u * mode * (1 - 1 / self.shape) + constant  # u y* = β abs(y*/a)^β

    def fall(self, u: Tensor, mode: Tensor, offset: Tensor) -> Tensor:
        """K ((1+e)^β - 1 - βe), e = t/y*, K = abs(y*/a)^β; its series where e is small."""
        beta = self.shape
        size = (mode / self.width).abs() ** beta
        direct = ((mode + offset) / self.width).abs() ** beta - size - u * offset
        ratio = offset / torch.where(mode == 0, 1.0, mode)
        growth = beta * torch.log((1 + ratio).abs())
        apart = size * (torch.expm1(growth) - beta * ratio)
        close = torch.where((ratio.abs() < CLOSE) & (ratio.abs() * beta < CLOSE), ratio, 0.0)
        factors, series = [beta * (beta - 1) / 2], torch.zeros_like(close)  # binomial coefficients
        for order in range(3, 24):
            factors.append(factors[-1] * (beta - order + 1) / order)
        for factor in reversed(factors):
            series = series * close + factor
        near = size * close**2 * series
        return torch.where(size < 1, direct, torch.where(close == 0, apart, near))

    def kinks(self, mode: Tensor) -> Tensor:
        # light tails end sharply beyond ±a
        places = [0.0] if self.shape < 2.5 else [-self.width, 0.0, self.width]
        return torch.stack([place - mode for place in places], -1)

    def cgf(self, u: Tensor) -> Tensor:
        return super().cgf(u) if self.shape > 1 else 0 * u

    def derivatives(self, u: Tensor, order: int) -> tuple[Tensor, ...]:
        if self.shape > 1:
            return super().derivatives(u, order)
        first, third, fifth = (math.lgamma(power / self.shape) for power in (1, 3, 5))
        zero = 0 * u
        excess = math.exp(fifth + first - 2 * third) - 3
        return (zero, zero, zero + 1, zero, zero + excess)[: order + 1]

    def sample(self, u: Tensor, generator: torch.Generator) -> Tensor:
        if bool((u != 0).any()):
            return super().sample(u, generator)
        # abs(x/a)^β is Gamma(1/β), or Gamma(1 + 1/β) V^β, which does not underflow
        power = torch._standard_gamma(torch.full_like(u, 1 + 1 / self.shape), generator=generator)
        return self.width * power ** (1 / self.shape) * (2 * uniform(u, generator) - 1)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class GeneralizedNormal(IidProduct):
    """Independent coordinates of unit variance with density ∝ e^{-abs(x/a)^shape}.

    Shape 1 is Laplace, 2 Gaussian, ∞ uniform; below 1 a tilt other than 0 raises
    :class:`TiltDomainError`.

    Examples
    --------
    >>> lp.scalar.GeneralizedNormal(1, shape=2.0).tilted_mean([3.0])
    tensor([3.0000], dtype=torch.float64)
    >>> lp.scalar.GeneralizedNormal(1, shape=4.0).tilted_mean([3.0])
    tensor([1.7...], dtype=torch.float64)
    """

    kind = GeneralizedNormalLaw
    shape: float

    def __post_init__(self) -> None:
        validation.store(self, shape=validation.positive("shape", self.shape))
        super().__post_init__()

    @functools.cached_property
    def law(self) -> ScalarLaw:
        return LaplaceLaw() if self.shape == 1 else super().law
