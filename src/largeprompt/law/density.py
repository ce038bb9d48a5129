"""Scalar laws seen through their densities: what the quadrature of heavy-tailed prompts needs to know of a law."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Self

import numpy as np

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.law.quadrature import Array
from largeprompt.measures import GeneralisedNormalLaw, LaplaceLaw, LogNormalLaw, ScalarLaw, StudentTLaw, UniformLaw

Function = Callable[[Array], Array]


@dataclasses.dataclass(frozen=True)
class ScalarDensity:
    """A law on the line.

    Attributes
    ----------
    density, upper, lower
        Density, P(z > x) and P(z < x); vectorised, the tails with full relative accuracy.
    upper_quantile, lower_quantile
        The x with P(z > x) = p, and with P(z < x) = p.
    kinks
        Points at which the density is not smooth, or around which it varies fastest.
    width
        Length over which it varies there.
    moments
        Moments exist below this order.
    breaks
        Points between neighbours of which it is smooth, where lengths that double away from the kinks do not do.
    """

    density: Function
    upper: Function
    lower: Function
    upper_quantile: Function
    lower_quantile: Function
    kinks: tuple[float, ...]
    width: float
    moments: float = math.inf
    breaks: tuple[float, ...] = ()

    @classmethod
    def symmetric(cls, density: Function, upper: Function, quantile: Function, width: float, moments: float = math.inf) -> Self:
        """A law that is its own mirror image, varying fastest around 0."""
        return cls(density, upper, lambda x: upper(-x), quantile, lambda p: -quantile(p), (0.0,), width, moments)

    def mirrored(self) -> Self:
        """The law of -z."""
        return dataclasses.replace(
            self,
            density=lambda x: self.density(-x),
            upper=lambda x: self.lower(-x),
            lower=lambda x: self.upper(-x),
            upper_quantile=lambda p: -self.lower_quantile(p),
            lower_quantile=lambda p: -self.upper_quantile(p),
            kinks=tuple(-kink for kink in self.kinks),
            breaks=tuple(-point for point in self.breaks),
        )


@functools.singledispatch
def scalar_density(law: ScalarLaw) -> ScalarDensity:
    """Density, tails and quantiles of a scalar law of the library."""
    raise InvalidArgumentError("law", validation.text(law), "a law with a density here, or a ScalarDensity of your own")


def has_density(law: ScalarLaw) -> bool:
    """Whether :func:`scalar_density` knows this law."""
    return scalar_density.dispatch(type(law)) is not scalar_density.dispatch(object)


@scalar_density.register
def _student(law: StudentTLaw) -> ScalarDensity:
    from scipy import special

    df, scale = law.df, law.scale
    if math.isinf(df):
        constant = 1 / (scale * math.sqrt(2 * math.pi))
        return ScalarDensity.symmetric(
            lambda x: constant * np.exp(-((x / scale) ** 2) / 2),
            lambda x: special.ndtr(-x / scale),
            lambda p: -scale * special.ndtri(p),
            scale,
        )
    log_constant = -float(special.betaln(0.5, df / 2)) - math.log(df) / 2 - math.log(scale)  # finite for any df

    def beyond(x: Array) -> Array:
        """P(z > x) by the incomplete beta function, which keeps its digits however far x lies."""
        ratio = np.asarray(x / scale, dtype=np.float64) ** 2 / df
        near, far = special.betaincc(0.5, df / 2, ratio / (1 + ratio)), special.betainc(df / 2, 0.5, 1 / (1 + ratio))
        half = np.where(ratio > 1, far, near) / 2
        return np.where(x > 0, half, 1 - half)

    return ScalarDensity.symmetric(
        lambda x: np.exp(log_constant - (df + 1) / 2 * np.log1p((x / scale) ** 2 / df)),
        beyond,
        lambda p: np.asarray(-scale * special.stdtrit(df, p), dtype=np.float64),
        scale * min(1.0, math.sqrt(df)),
        df,
    )


@scalar_density.register
def _laplace(law: LaplaceLaw) -> ScalarDensity:
    rate = math.sqrt(2)

    def beyond(x: Array) -> Array:
        half = np.exp(-rate * np.abs(x)) / 2
        return np.asarray(np.where(x > 0, half, 1 - half))

    def beyond_quantile(p: Array) -> Array:
        return np.asarray(np.where(p < 0.5, -np.log(2 * np.minimum(p, 0.5)), np.log(2 * np.maximum(1 - p, 1e-300))) / rate)

    return ScalarDensity.symmetric(lambda x: np.exp(-rate * np.abs(x)) / rate, beyond, beyond_quantile, 1 / rate)


@scalar_density.register
def _lognormal(law: LogNormalLaw) -> ScalarDensity:
    from scipy import special

    scale, center, spread = law.scale, law.center, law.spread
    constant = spread / (scale * math.sqrt(2 * math.pi))

    def normal(x: Array) -> Array:
        """ξ with x = (e^{sξ} - m)/v; -∞ below the support."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.maximum(center + spread * x, 0.0)) / scale)

    def density(x: Array) -> Array:
        xi = normal(x)
        return np.asarray(constant * np.exp(-(xi**2) / 2 - scale * np.maximum(xi, -40.0)))

    # panels of ln x: to the left the density is smaller than any power of the distance from the end of its support
    xi = np.arange(-9.0, 9.5 + 2 * scale, min(0.75, 1.1 / scale))
    return ScalarDensity(
        density,
        lambda x: special.ndtr(-normal(x)),
        lambda x: special.ndtr(normal(x)),
        lambda p: (np.exp(-scale * special.ndtri(p)) - center) / spread,
        lambda p: (np.exp(scale * special.ndtri(p)) - center) / spread,
        (-center / spread,),
        math.exp(-3 * scale) * min(scale, 1.0) / spread,
        breaks=(-center / spread, *((np.exp(scale * xi) - center) / spread)),
    )


@scalar_density.register
def _uniform(law: UniformLaw) -> ScalarDensity:
    end = law.bound
    return ScalarDensity(
        lambda x: np.where(np.abs(x) < end, 1 / (2 * end), 0.0),
        lambda x: np.clip((end - x) / (2 * end), 0.0, 1.0),
        lambda x: np.clip((end + x) / (2 * end), 0.0, 1.0),
        lambda p: end - 2 * end * p,
        lambda p: 2 * end * p - end,
        (-end, end),
        end,
        breaks=(-end, end),
    )


@scalar_density.register
def _generalised_normal(law: GeneralisedNormalLaw) -> ScalarDensity:
    from scipy import special

    shape, width = law.shape, law.width
    log_constant = math.log(shape / (2 * width)) - math.lgamma(1 / shape)

    def beyond(x: Array) -> Array:
        """P(z > x) by the incomplete gamma function."""
        power = np.abs(x / width) ** shape
        return np.asarray(np.where(x > 0, special.gammaincc(1 / shape, power), 1 + special.gammainc(1 / shape, power)) / 2)

    def quantile(p: Array) -> Array:
        half = np.where(p < 0.5, special.gammainccinv(1 / shape, 2 * np.minimum(p, 0.5)), 0.0)
        other = np.where(p < 0.5, 0.0, special.gammaincinv(1 / shape, np.maximum(2 * p - 1, 0.0)))
        return np.asarray(width * (half ** (1 / shape) - other ** (1 / shape)))

    # the exponent changes by 3 from one to the next, and abs(x)^β is not smooth at 0
    far, near = width * (3.0 * np.arange(1, 50)) ** (1 / shape), width * 4.0 ** np.arange(-23, 40)
    side = np.unique(np.concatenate([near[near < far[-1]], far]))
    known = ScalarDensity.symmetric(lambda x: np.exp(log_constant - np.abs(x / width) ** shape), beyond, quantile, width)
    return dataclasses.replace(known, breaks=(*-side[::-1], 0.0, *side))
