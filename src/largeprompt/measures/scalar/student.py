"""Student-t coordinates: no exponential moment, hence no infinite-prompt limit of attention."""

import dataclasses
import functools
import math

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import NoMomentError
from largeprompt.measures.scalar.density import Array, ScalarDensity
from largeprompt.measures.scalar.product import IidProduct, ScalarLaw, uniform


@dataclasses.dataclass(frozen=True)
class StudentTLaw(ScalarLaw):
    """Student-t with ``df`` degrees of freedom times ``scale``; df = inf is the normal law.

    Λ(u) = +∞ for every u ≠ 0 unless df = inf: cumulants exist at u = 0 only, and only up to the
    order below df.
    """

    relative_precision = True
    df: float
    scale: float

    def __post_init__(self) -> None:
        df = validation.positive("df", self.df, allow_infinity=True)
        validation.store(self, df=df, scale=validation.positive("scale", self.scale))

    @property
    def domain(self) -> tuple[float, float]:
        return (-math.inf, math.inf) if math.isinf(self.df) else (0.0, 0.0)

    def cgf(self, u: Tensor) -> Tensor:
        # df = inf, or u = 0: elsewhere the domain check has raised
        return (self.scale * u) ** 2 / 2

    def derivatives(self, u: Tensor, order: int) -> tuple[Tensor, ...]:
        """Those of the normal law for df = inf; with finite df the tilt is 0."""
        for count, moment in ((1, "mean"), (2, "variance"), (4, "fourth moment")):
            if order >= count >= self.df:
                given = f"a Student-t law with df = {self.df:g}"
                remedy = f"Its {moment} does not exist or is infinite."
                raise NoMomentError(moment, given, f"df > {count}", remedy)
        zero, normal = torch.zeros_like(u), math.isinf(self.df)
        variance = self.scale**2 * (1.0 if normal or order < 2 else self.df / (self.df - 2))
        excess = 0.0 if normal or order < 4 else 6 / (self.df - 4)
        slopes = (self.scale**2 * u, zero + variance, zero, zero + excess * variance**2)
        return self.cgf(u), *slopes[:order]

    def density(self) -> ScalarDensity:
        from scipy import stats  # takes half a second, and few need it

        if math.isinf(self.df):
            return ScalarDensity.of(stats.norm(scale=self.scale), kinks=(0.0,), width=self.scale)
        law = stats.t(self.df, scale=self.scale)
        width, power = self.scale * min(1.0, math.sqrt(self.df)), (self.df + 1) / 2
        top = float(law.logpdf(0.0))

        def density(x: Array) -> Array:  # ten times as fast as that of scipy.stats
            return np.exp(top - power * np.log1p((x / self.scale) ** 2 / self.df))

        found = ScalarDensity.of(law, kinks=(0.0,), width=width, moments=self.df)
        return dataclasses.replace(found, density=density)

    def sample(self, u: Tensor, generator: torch.Generator) -> Tensor:
        radius, angle = uniform(torch.stack([u, u]), generator)
        log_radius, df = torch.log1p(-radius), self.df
        # Bailey's polar method: two uniforms give one exact draw for any df, Box-Muller at df = inf
        square = -2 * log_radius if math.isinf(df) else df * torch.expm1(-2 * log_radius / df)
        return self.scale * torch.sqrt(square) * torch.cos(2 * math.pi * angle) + self.scale**2 * u


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class StudentT(IidProduct):
    """Independent Student-t coordinates, scaled to unit variance when df > 2.

    A finite prompt attends to such tokens; the cgf is infinite at every u ≠ 0, and the infinite
    prompt raises :class:`TiltDomainError`. With df = inf the law is N(0, I).

    Examples
    --------
    >>> lp.StudentT(3, df=5.0).covariance.diagonal()
    tensor([1.0000, 1.0000, 1.0000], dtype=torch.float64)
    >>> lp.StudentT(1, df=5.0).cgf([0.1])
    Traceback (most recent call last):
    largeprompt.errors.TiltDomainError: u: got the entry 0.1 on StudentT(dim=1, df=5)...
    """

    df: float

    @functools.cached_property
    def law(self) -> ScalarLaw:
        law = StudentTLaw(self.df, 1.0)
        if not 2 < law.df < math.inf:
            return law
        return dataclasses.replace(law, scale=math.sqrt((law.df - 2) / law.df))
