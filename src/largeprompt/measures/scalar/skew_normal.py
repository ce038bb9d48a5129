"""Skew-normal coordinates: the Gaussian leaned to one side, with a closed cgf."""

import dataclasses
import math

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures.scalar.product import IidProduct, ScalarLaw, normal, uniform

LARGEST_SKEW = (4 - math.pi) / 2 * (2 / (math.pi - 2)) ** 1.5  # of the half-normal law, 0.99527
FAR = -4.0  # below, log Φ is computed from its tail, to full precision by 60 Laguerre nodes
LAGUERRE = np.polynomial.laguerre.laggauss(60)


def log_ndtr(x: Tensor) -> Tensor:
    """log Φ(x), right to rounding for every x, derivatives of all orders included.

    Far left, Φ(-y) = φ(y)/y · ∫ e^{-v - v²/(2y²)} dv by a rule whose terms are positive.
    """
    far = x < FAR
    y = torch.where(far, -x, 1.0)
    nodes, weights = (torch.as_tensor(part, dtype=x.dtype, device=x.device) for part in LAGUERRE)
    series = (weights * torch.exp(-((nodes / y.unsqueeze(-1)) ** 2) / 2)).sum(-1)
    tail = -(y**2) / 2 - math.log(2 * math.pi) / 2 - torch.log(y) + torch.log(series)
    left, right = torch.where(far | (x > 0), 0.0, x), torch.where(x > 0, x, 0.0)
    from_left = torch.log(torch.erfc(-left / math.sqrt(2)) / 2)
    from_right = torch.log1p(-torch.erfc(right / math.sqrt(2)) / 2)
    return torch.where(far, tail, torch.where(x > 0, from_right, from_left))


def _complex_log_ndtr(g: Tensor) -> tuple[Tensor, Tensor]:
    """log Φ and φ/Φ at complex g, by Faddeeva's function: Φ(g) = e^{-g²/2} wofz(-ig/√2)/2."""
    from scipy.special import wofz

    right = g.real > 0
    argument = 1j * torch.where(right, g, -g) / math.sqrt(2)
    scaled = torch.from_numpy(wofz(argument.cpu().numpy())).to(g.device) / 2  # of Φ(-|g|) e^{g²/2}
    square = g**2 / 2
    growing = square.real < 0
    # for Re g > 0, Φ = 1 - Φ(-g): whichever of Φ and Φ e^{g²/2} does not overflow
    plain = torch.exp(torch.where(growing, square, -square))
    grown, shrunk = -square + torch.log(plain - scaled), torch.log1p(-plain * scaled)
    value = torch.where(growing, grown, shrunk)
    ratio = torch.where(growing, 1 / (plain - scaled), plain / (1 - plain * scaled))
    value = torch.where(right, value, -square + torch.log(scaled))
    return value, torch.where(right, ratio, 1 / scaled) / math.sqrt(2 * math.pi)


@dataclasses.dataclass(frozen=True)
class SkewNormalLaw(ScalarLaw):
    """Azzalini's skew-normal law of skewness ``skew``, with mean 0 and variance 1.

    x = (δ·abs(ξ) + √(1-δ²) η - m)/s with ξ, η standard normal, m = δ√(2/π), s² = 1 - m², skew =
    (4-π)/2 (m/s)³; Λ(u) = -um/s + (u/s)²/2 + log 2Φ(δu/s), (tilt.8) of docs/mathematics/tilting.md.
    """

    skew: float

    def __post_init__(self) -> None:
        skew = validation.number("skew", self.skew)
        if not abs(skew) < LARGEST_SKEW:
            allowed = f"a number between -{LARGEST_SKEW:.5f} and {LARGEST_SKEW:.5f}"
            raise InvalidArgumentError("skew", validation.text(self.skew), allowed)
        object.__setattr__(self, "skew", skew)

    @property
    def delta(self) -> float:
        """δ in (-1, 1), the correlation that makes the law lean."""
        ratio = math.copysign((2 * abs(self.skew) / (4 - math.pi)) ** (1 / 3), self.skew)  # m/s
        return ratio / math.sqrt(1 + ratio**2) * math.sqrt(math.pi / 2)

    @property
    def center(self) -> float:
        """m, the mean of δ·abs(ξ) + √(1-δ²) η."""
        return self.delta * math.sqrt(2 / math.pi)

    @property
    def spread(self) -> float:
        """s, its standard deviation."""
        return math.sqrt(1 - self.center**2)

    def cgf(self, u: Tensor) -> Tensor:
        t = u / self.spread
        return t**2 / 2 - self.center * t + math.log(2) + log_ndtr(self.delta * t)

    def derivatives(self, u: Tensor, order: int) -> tuple[Tensor, ...]:
        if not u.is_complex():
            return super().derivatives(u, order)
        t = u / self.spread
        g = self.delta * t
        value, ratio = _complex_log_ndtr(g)
        slopes = [ratio, -ratio * (g + ratio)]  # of log Φ
        slopes.append(-slopes[1] * (g + 2 * ratio) - ratio)
        slopes.append(-slopes[2] * (g + 2 * ratio) - 2 * slopes[1] * (1 + slopes[1]))
        value = t**2 / 2 - self.center * t + math.log(2) + value
        found = [slope * (self.delta / self.spread) ** i for i, slope in enumerate(slopes, 1)]
        found[0] = found[0] + (t - self.center) / self.spread
        found[1] = found[1] + 1 / self.spread**2
        return (value, *found)[: order + 1]

    def sample(self, u: Tensor, generator: torch.Generator) -> Tensor:
        """The tilt by u moves ξ, η by δu/s, √(1-δ²)u/s and leaves ξ > 0."""
        from scipy.special import log_ndtr, ndtri_exp

        t, delta = u / self.spread, self.delta
        mean, rest = delta * t, math.sqrt(1 - delta**2)
        place = torch.log1p(-uniform(u, generator)).cpu().numpy()
        low = ndtri_exp(place + log_ndtr(mean.cpu().numpy()))  # -ξ given that it is negative
        positive = (mean - torch.from_numpy(low).to(u)).clamp_min(0.0)
        eta = normal(u, generator) + rest * t
        return (delta * positive + rest * eta - self.center) / self.spread


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SkewNormal(IidProduct):
    """Independent skew-normal coordinates of mean 0, variance 1 and skewness ``skew``.

    Examples
    --------
    >>> lp.scalar.SkewNormal(1, skew=0.5).tilted_mean([[1.0], [-1.0]])
    tensor([[ 1.2...],
            [-0.8...]], dtype=torch.float64)
    """

    kind = SkewNormalLaw
    skew: float
