"""Laws of tokens: six of unit covariance, and four families that leave the Gaussian by degrees."""

import dataclasses
import math
from collections.abc import Callable

import torch

from largeprompt.measures import (
    Gaussian,
    GaussianMixture,
    GeneralizedNormal,
    Laplace,
    Measure,
    Rademacher,
    RademacherSum,
    SkewNormal,
    Sphere,
    Uniform,
)

F = torch.float64


def two_clusters(dim: int) -> GaussianMixture:
    """Two Gaussian clusters along (1, ..., 1) on either side of the origin, identity covariance."""
    half = torch.full((dim,), 0.9 / math.sqrt(dim), dtype=F)
    within = torch.eye(dim, dtype=F) - half.unsqueeze(-1) * half
    shares, means = torch.tensor([0.5, 0.5], dtype=F), torch.stack([half, -half])
    return GaussianMixture(shares, means, within.expand(2, dim, dim))


LAWS: dict[str, Callable[[int], Measure]] = {
    "Gaussian": lambda dim: Gaussian(torch.zeros(dim, dtype=F), torch.eye(dim, dtype=F)),
    "Rademacher": Rademacher,
    "uniform": Uniform,
    "Laplace": Laplace,
    "sphere": Sphere,
    "two clusters": two_clusters,
}


def two_components(m: float) -> GaussianMixture:
    """½N(-m, 1-m²) + ½N(m, 1-m²), 0 <= m <= 1."""
    shares, means = torch.tensor([0.5, 0.5], dtype=F), torch.tensor([[-m], [m]], dtype=F)
    return GaussianMixture(shares, means, torch.full((2, 1, 1), 1 - m * m, dtype=F))


def shape_slope(u: float) -> float:
    """d/dβ of T - u at β = 2, fixed variance: G(u) - G'(0)u with G(u) = -E (ξ+u) ln|ξ+u|.

    The logarithm of the density changes by -x² ln|x|/2 and a quadratic function of x.
    """
    from scipy.integrate import quad
    from scipy.stats import norm

    def integrand(x: float) -> float:
        return float(x * math.log(abs(x)) * norm.pdf(x - u)) if x else 0.0

    ends = ((u - 12, 0.0), (0.0, u + 12))
    value = sum(quad(integrand, *both, epsabs=1e-14, epsrel=1e-12)[0] for both in ends)
    return -value + u * (1 - (math.log(2) + 0.5772156649015329) / 2)  # E ln|ξ| = -(γ + ln 2)/2


@dataclasses.dataclass(frozen=True)
class Family:
    """Scalar laws make(p) of unit variance, Gaussian in a limit of p.

    Near it T - u is slope(u) x^power, x the distance of p from that limit; p = at(x).
    """

    make: Callable[[float], Measure]
    power: float
    slope: Callable[[float], float]
    at: Callable[[float], float]
    symbol: str
    title: str


FAMILIES = {
    "Rademacher sum": Family(  # κ4 = -2/k, the next cumulant of order 1/k²; distance 1/k
        lambda k: RademacherSum(1, round(k)),
        1.0,
        lambda u: -(u**3) / 3,
        lambda x: float(round(1 / x)),
        "k",
        "sum of $k$ signs",
    ),
    "generalized normal": Family(  # distance β - 2
        lambda shape: GeneralizedNormal(1, shape),
        1.0,
        shape_slope,
        lambda x: 2 + x,
        r"\beta",
        r"density $\propto e^{-|x/a|^\beta}$",
    ),
    "mixture": Family(  # κ4 = -2m⁴; distance m
        two_components, 4.0, lambda u: -(u**3) / 3, lambda x: x, "m", "two components at $\\pm m$"
    ),
    "skew": Family(  # κ3 is the parameter, κ4 of order κ3^(4/3)
        lambda skew: SkewNormal(1, skew),
        1.0,
        lambda u: u**2 / 2,
        lambda x: x,
        r"\kappa_3",
        r"skewness $\kappa_3$",
    ),
}
