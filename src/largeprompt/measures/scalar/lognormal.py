"""Lognormal coordinates: exponential moments on one side only."""

import dataclasses
import math

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures.scalar.density import ScalarDensity
from largeprompt.measures.scalar.logconcave import LogConcaveLaw
from largeprompt.measures.scalar.product import IidProduct, normal


@dataclasses.dataclass(frozen=True)
class LogNormalLaw(LogConcaveLaw):
    """x = (e^{sξ} - m)/v for a standard normal ξ, of mean 0 and variance 1, s = ``scale``.

    m = e^{s²/2} and v² = e^{2s²} - e^{s²}. Λ(u) = +∞ for u > 0; else by quadrature around the mode
    -W(s²·abs(u)/v)/s of the tilted law of ξ, with Lambert's function W.
    """

    domain = (-math.inf, 0.0)
    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", validation.positive("scale", self.scale))
        # beyond, a fourth moment e^{6s²} swamps everything that a sample can show
        if not 1e-3 <= self.scale <= 3:
            remedy = "Below, the law is Gaussian to within 1e-3."
            raise InvalidArgumentError("scale", f"{self.scale:g}", "0.001 to 3", remedy)

    @property
    def center(self) -> float:
        """m, the mean of e^{sξ}."""
        return math.exp(self.scale**2 / 2)

    @property
    def spread(self) -> float:
        """v, the standard deviation of e^{sξ}."""
        return self.center * math.sqrt(math.expm1(self.scale**2))

    def _lambert(self, u: Tensor) -> Tensor:
        """W(s²·abs(u)/v) with W e^W = ., by Halley's iteration from above."""
        argument = self.scale**2 * u.abs() / self.spread
        w = torch.log1p(argument)
        w = torch.where(argument > 10, w - torch.log(w.clamp_min(1.0)), w)
        for _ in range(8):
            residual = w - argument * torch.exp(-w)
            slope = 1 + w
            w = w - residual / (slope - (w + 2) * residual / (2 * slope))
        return w

    def mode(self, u: Tensor) -> Tensor:
        return -self._lambert(u) / self.scale

    def height(self, u: Tensor, mode: Tensor) -> Tensor:
        # abs(u) e^{s y*}/v = W/s² = -y*/s at the mode
        constant = -u * self.center / self.spread - math.log(2 * math.pi) / 2
        return -(mode**2) / 2 + mode / self.scale + constant

    def fall(self, u: Tensor, mode: Tensor, offset: Tensor) -> Tensor:
        """t²/2 + (W/s²)(e^{st} - 1 - st), with the series of the bracket where st is small."""
        turn = self.scale * offset
        close = torch.where(turn.abs() < 0.5, turn, 0.0)
        series = torch.zeros_like(close)
        for order in range(18, 2, -1):
            series = close / order * (1 + series)
        bracket = torch.where(close == 0, torch.expm1(turn) - turn, close**2 / 2 * (1 + series))
        return offset**2 / 2 + torch.where(mode == 0, 0.0, -mode / self.scale * bracket)

    def token(self, mode: Tensor) -> Tensor:
        return torch.expm1(self.scale * mode - self.scale**2 / 2) * self.center / self.spread

    def rise(self, mode: Tensor, offset: Tensor) -> Tensor:
        return torch.exp(self.scale * mode) * torch.expm1(self.scale * offset) / self.spread

    @property
    def growth(self) -> float:
        return 4 * self.scale

    def kinks(self, mode: Tensor) -> Tensor:
        """The wall, where (W/s²) e^{st} reaches one; without one, the peak of x⁴ e^{-t²/2}."""
        wall = -torch.log((-mode / self.scale).clamp_min(1e-300)) / self.scale
        return wall.clamp_max(self.growth).unsqueeze(-1)

    def density(self) -> ScalarDensity:
        from scipy import stats  # takes half a second, and few need it

        start = -self.center / self.spread
        law = stats.lognorm(self.scale, loc=start, scale=1 / self.spread)
        # panels of ln x
        xi = np.arange(-9.0, 9.5 + 2 * self.scale, min(0.75, 1.1 / self.scale))
        breaks = (start, *(start + np.exp(self.scale * xi) / self.spread))
        width = math.exp(-3 * self.scale) * min(self.scale, 1.0) / self.spread
        return ScalarDensity.of(law, kinks=(start,), width=width, breaks=breaks)

    def sample(self, u: Tensor, generator: torch.Generator) -> Tensor:
        if bool((u != 0).any()):
            return super().sample(u, generator)
        return self.token(normal(u, generator))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class LogNormal(IidProduct):
    """Independent lognormal coordinates of mean 0 and variance 1; ``scale`` is of the logarithm.

    A positive entry of u, where the cgf is infinite, raises :class:`TiltDomainError`.

    Examples
    --------
    >>> lp.scalar.LogNormal(1, scale=0.5).tilted_mean([-1.0])
    tensor([-0.5...], dtype=torch.float64)
    >>> lp.scalar.LogNormal(1, 0.5).cgf([0.1])
    Traceback (most recent call last):
    largeprompt.errors.TiltDomainError: u: got the entry 0.1 on LogNormal(dim=1, scale=0.5)...
    """

    kind = LogNormalLaw
    scale: float
