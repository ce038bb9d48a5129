"""Scalar laws seen through their densities: what a law declares whose score has heavy tails."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Function = Callable[[Array], Array]


@dataclasses.dataclass(frozen=True)
class ScalarDensity:
    """A law on the line, by vectorized functions.

    ``density``, ``upper`` P(z > x) and ``lower`` P(z < x) have full relative accuracy; quantiles
    invert the tails. At ``kinks`` the density is not smooth or varies fastest, over a length
    ``width``. Moments exist below the order ``moments``. Between neighbors of ``breaks`` the
    density is smooth, where its scale does not double from the kinks on.
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
    def of(cls, law: Any, **known: Any) -> Self:
        """The density of a frozen law of ``scipy.stats``, with the fields from ``kinks`` on."""
        return cls(law.pdf, law.sf, law.cdf, law.isf, law.ppf, **known)

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


@runtime_checkable
class HasDensity(Protocol):
    """A scalar law that declares its density: finite prompts are exact without a cgf, too."""

    def density(self) -> ScalarDensity:
        """Density, tails and quantiles of the law."""
