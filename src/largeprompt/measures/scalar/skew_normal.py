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
FAR = -4.0  # below, log Φ is computed from its tail
LAGUERRE = np.polynomial.laguerre.laggauss(60)


def log_ndtr(x: Tensor) -> Tensor:
    """log Φ(x), right to rounding for every x, derivatives of all orders included.

    Far left, Φ(-y) = φ(y)/y · ∫ e^{-v - v²/(2y²)} dv by a Gauss-Laguerre rule, whose terms are
    positive and do not underflow.
    """
    far = x < FAR
    y = torch.where(far, -x, 1.0)
    nodes, weights = (torch.as_tensor(part, dtype=x.dtype, device=x.device) for part in LAGUERRE)
    series = (weights * torch.exp(-((nodes / y.unsqueeze(-1)) ** 2) / 2)).sum(-1)
    tail = -(y**2) / 2 - math.log(2 * math.pi) / 2 - torch.log(y) + torch.log(series)
    near, right = torch.where(far | (x > 0), 0.0, x), torch.where(x > 0, x, 0.0)
    left_part = torch.log(torch.erfc(-near / math.sqrt(2)) / 2)
    right_part = torch.log1p(-torch.erfc(right / math.sqrt(2)) / 2)
    return torch.where(far, tail, torch.where(x > 0, right_part, left_part))


def _complex_log_ndtr(g: Tensor) -> tuple[Tensor, Tensor]:
    """log Φ and its derivative φ/Φ at complex g, by Faddeeva's function: Φ(g) = e^{-g²/2}
    wofz(-ig/√2)/2 = 1 - Φ(-g).
    """
    from scipy.special import wofz

    sign = torch.where(g.real > 0, -1.0, 1.0)
    # of Φ(-abs(g)) e^{g²/2}
    scaled = torch.from_numpy(wofz((-1j * sign * g / math.sqrt(2)).cpu().numpy())).to(g.device) / 2
    square = g**2 / 2
    growing = square.real < 0
    # for Re g > 0, Φ e^{g²/2} = e^{g²/2} - scaled; whichever of Φ and Φ e^{g²/2} does not overflow
    plain = torch.exp(torch.where(growing, square, -square))
    left = -square + torch.log(scaled)
    right = torch.where(growing, -square + torch.log(plain - scaled), torch.log1p(-plain * scaled))
    ratio_right = torch.where(growing, 1 / (plain - scaled), plain / (1 - plain * scaled))
    value, ratio = (
        torch.where(sign > 0, left, right),
        torch.where(sign > 0, 1 / scaled, ratio_right),
    )
    return value, ratio / math.sqrt(2 * math.pi)


@dataclasses.dataclass(frozen=True)
class SkewNormalLaw(ScalarLaw):
    """Azzalini's skew-normal law of skewness ``skew``, with mean 0 and variance 1.

    x = (δ·abs(ξ) + √(1-δ²) η - m)/s with ξ, η standard normal, m = δ√(2/π), s² = 1 - m²; skew =
    (4-π)/2 (m/s)³ fixes δ, and Λ(u) = -um/s + (u/s)²/2 + log 2Φ(δu/s), formula (tilt.8) of
    docs/mathematics/tilting.md.
    """

    skew: float

    def __post_init__(self) -> None:
        skew = validation.number("skew", self.skew)
        if not abs(skew) < LARGEST_SKEW:
            allowed = (
                f"a number between -{LARGEST_SKEW:.5f} and {LARGEST_SKEW:.5f}, the skewness "
                "of the half-normal law"
            )
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
        value, ratio = _complex_log_ndtr(self.delta * t)
        whole = t**2 / 2 - self.center * t + math.log(2) + value
        g, slopes = self.delta * t, [ratio]
        slopes.append(-ratio * (g + ratio))  # of φ/Φ
        slopes.append(-slopes[1] * (g + 2 * ratio) - ratio)
        slopes.append(-slopes[2] * (g + 2 * ratio) - 2 * slopes[1] * (1 + slopes[1]))
        first, second, *higher = (
            slope * (self.delta / self.spread) ** i for i, slope in enumerate(slopes, 1)
        )
        return (
            whole,
            first + (t - self.center) / self.spread,
            second + 1 / self.spread**2,
            *higher,
        )[: order + 1]

    def sample(self, u: Tensor, generator: torch.Generator) -> Tensor:
        """The tilt by u moves ξ, η by δu/s, √(1-δ²)u/s and leaves ξ > 0: a truncated normal
        variable and a normal one.
        """
        t, delta = u / self.spread, self.delta
        positive, rest = _positive_normal(delta * t, generator), math.sqrt(1 - delta**2)
        return (
            delta * positive + rest * (normal(u, generator) + rest * t) - self.center
        ) / self.spread


def _positive_normal(mean: Tensor, generator: torch.Generator) -> Tensor:
    """N(mean, 1) given that it is positive: inverse cdf; far left, an exponential variable kept
    with probability e^{-v²/2}.
    """
    near = mean.clamp_min(FAR)
    drawn: Tensor = near - torch.special.ndtri(
        (1 - uniform(mean, generator)) * torch.special.ndtr(near)
    )
    waiting = mean < FAR
    while bool(waiting.any()):
        rate = -mean[waiting]
        place, test = torch.rand(
            (2, *rate.shape), generator=generator, dtype=mean.dtype, device=mean.device
        )
        offset = -torch.log1p(-place) / rate
        kept = -torch.log1p(-test) >= offset**2 / 2
        drawn[waiting] = torch.where(kept, offset, drawn[waiting])
        waiting = waiting.masked_scatter(waiting, ~kept)
    return drawn.clamp_min(0.0)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SkewNormal(IidProduct):
    """Independent skew-normal coordinates of mean 0, variance 1 and skewness ``skew``; 0 is the
    Gaussian.

    Examples
    --------
    >>> lp.scalar.SkewNormal(1, skew=0.5).tilted_mean([[1.0], [-1.0]])
    tensor([[ 1.2...],
            [-0.8...]], dtype=torch.float64)
    """

    kind = SkewNormalLaw
    skew: float
