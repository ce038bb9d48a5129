"""One-parameter families of scalar laws of unit variance that leave the Gaussian, with what cumulants predict of their gap."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import torch

from largeprompt.errors import InvalidArgumentError
from largeprompt.measures import Gaussian, GaussianMixture, GeneralisedNormal, Measure, RademacherSum, SkewNormal

F = torch.float64


def two_components(m: float) -> GaussianMixture:
    """½N(-m, 1-m²) + ½N(m, 1-m²)."""
    if not 0 <= m <= 1:
        raise InvalidArgumentError("separation", f"{m:g}", "half the distance of the components, from 0 to 1")
    return GaussianMixture(
        torch.tensor([0.5, 0.5], dtype=F),
        torch.tensor([[-m], [m]], dtype=F),
        torch.full((2, 1, 1), 1 - m * m, dtype=F),
    )


def standard_gaussian(_: float = 0.0) -> Gaussian:
    """N(0, 1)."""
    return Gaussian(torch.zeros(1, dtype=F), torch.eye(1, dtype=F))


@dataclasses.dataclass(frozen=True)
class Family:
    """Laws make(p), Gaussian in a limit of p; near it the gap T - affine is slope(u) x^power, x the distance of p from that limit.

    Attributes
    ----------
    make
        The law with parameter p.
    power, slope
        Of the gap, predicted.
    at
        The parameter at distance x.
    """

    make: Callable[[float], Measure]
    power: float
    slope: Callable[[float], float]
    at: Callable[[float], float]


def generalised_normal_slope(u: float) -> float:
    """d/dβ of T - u at the Gaussian, β = 2, at fixed variance: G(u) - G'(0)u with G(u) = -E (ξ+u) ln|ξ+u|, ξ standard normal.

    The logarithm of the density changes by -x² ln|x|/2 and a quadratic function of x, which moments up to the second undo; all even
    cumulants change at first order, the fourth by -1: -u³/6 + ...
    """
    from scipy.integrate import quad
    from scipy.stats import norm

    def integrand(x: float) -> float:
        return float(x * math.log(abs(x)) * norm.pdf(x - u)) if x else 0.0

    value = sum(quad(integrand, low, high, epsabs=1e-14, epsrel=1e-12)[0] for low, high in ((u - 12, 0.0), (0.0, u + 12)))
    return -value + u * (1 - (math.log(2) + 0.5772156649015329) / 2)  # E ln|ξ| = -(γ + ln 2)/2


FAMILIES: dict[str, Family] = {
    # κ4 = -2/k, the next cumulant of order 1/k²; distance 1/k
    "Rademacher sum": Family(lambda k: RademacherSum(1, round(k)), 1.0, lambda u: -(u**3) / 3, lambda x: float(round(1 / x))),
    # distance β - 2
    "generalised normal": Family(lambda shape: GeneralisedNormal(1, shape), 1.0, generalised_normal_slope, lambda x: 2 + x),
    # κ4 = -2m⁴; distance m
    "mixture": Family(two_components, 4.0, lambda u: -(u**3) / 3, lambda x: x),
    # κ3 is the parameter, κ4 of order κ3^(4/3)
    "skew": Family(lambda skew: SkewNormal(1, skew), 1.0, lambda u: u**2 / 2, lambda x: x),
}
