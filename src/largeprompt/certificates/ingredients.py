"""The finite quantities that a certificate is made of, for every query at once, rounded outward by
(cert.20).

With ω = e^{u·x - Λ(u)}, T = ∇Λ(u) and ζ = V(x - T), as in docs/mathematics/certificates.md: E ω^j
f = e^{Λ(ju) - jΛ(u)} E_{ju} f.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from largeprompt.errors import InvalidArgumentError, NoMomentError
from largeprompt.measures import Measure

EPS = torch.finfo(torch.float64).eps
UNITS = 64  # of rounding in a tilted moment; the most in 15,000 moments of 20 laws was 14
# tokens between 2^-100 and 2^100 have fourth moments within the range of double precision
ORDINARY = 100


def unit(dim: int) -> float:
    """ε of (cert.20), with d roundings for a product with V."""
    return (UNITS + dim) * EPS


def binary_exponent(values: Tensor, dim: tuple[int, ...]) -> Tensor:
    """e with max|values| about 2^e, for scaling without rounding; 0 where all vanish."""
    return torch.frexp(values.abs().amax(dim))[1].clamp(-1000, 1000).to(values.dtype)


def positive(values: Tensor, wherever: Tensor) -> Tensor:
    """Values that are 0 only where ``wherever`` is: never by underflow."""
    return torch.where(wherever > 0, values.clamp_min(torch.finfo(values.dtype).tiny), values)


def rescaled(values: Tensor, exponent: Tensor) -> Tensor:
    """values·4^exponent, where what is positive stays so."""
    factor = torch.exp2(exponent.clamp(-1000, 1000))
    return positive(values * factor * factor, values)


def nan_to_inf(values: Tensor) -> Tensor:
    """Infinity, which bounds everything, in place of the NaN that inf - inf or inf
    times 0 makes.
    """
    return torch.where(torch.isnan(values), torch.inf, values)


def usable(moments: Tensor) -> Tensor:
    """Nonnegative moments as they are; infinity in place of NaN, and of a negative value, of which
    rounding has left nothing.
    """
    return torch.where(moments >= 0, moments, torch.inf)


class Reading(NamedTuple):
    """What V reads of the tilt by ju, each of shape (query,): upper bounds, but for ``least``."""

    log_weight: Tensor  # Λ(ju) - jΛ(u), as computed
    lost: Tensor  # its rounding
    spread: Tensor  # E_{ju}‖ζ‖² = tr V∇²Λ(ju)V^T + ‖V(∇Λ(ju) - T)‖²
    least: Tensor  # not above E_{ju}‖ζ‖²
    shift: Tensor  # ‖V(∇Λ(ju) - T)‖²
    level: Tensor  # ε(1 + t)
    size: Tensor  # ‖abs(V) s‖²
    width: Tensor  # the same, of fourth moments
    slip: Tensor  # ‖abs(V) e‖, e the rounding of ∇Λ(ju) - T

    @property
    def weight(self) -> Tensor:
        """E ω^j; infinite where rounding leaves no digit."""
        return torch.where(self.lost < 1, torch.exp(self.log_weight + self.lost), torch.inf)

    def fourth(self, moment: Tensor) -> Tensor:
        """E_{ju}‖ζ‖⁴, from what was computed of it."""
        return usable(
            (
                (moment * (1 + self.level) + self.level * self.width**2).clamp_min(0.0) ** 0.25
                + self.slip
            )
            ** 4
        )


class TiltedMoments:
    """Moments of a law under the tilts ju, around T = ∇Λ(u), for u of shape (query, d): each of
    shape (query,).

    Tokens are centered, so that no digits are lost to a large mean, and divided by 2^exponent where
    they are huge or tiny.
    """

    def __init__(self, mu: Measure, u: Tensor) -> None:
        self.mu, self.u, self.limit, self.unit = mu, u, mu.tilted_mean(u), unit(mu.dim)
        self.slip = torch.zeros_like(u)
        spread = self.each(
            lambda u, *_: mu.covariance.diagonal(dim1=-2, dim2=-1).sum(-1).expand(len(u))
        )
        spread, center = torch.cat([u.new_zeros(1), spread]).nan_to_num(posinf=0.0), mu.mean
        self.exponent = binary_exponent(spread.sqrt(), (0,))
        if abs(float(self.exponent)) < ORDINARY:
            self.exponent = torch.zeros_like(self.exponent)
        if bool((center != 0).any()) or float(self.exponent) != 0:
            size = torch.exp2(-self.exponent)
            self.mu = mu = mu.map(
                size * torch.eye(mu.dim, dtype=u.dtype, device=u.device), -size * center
            )
            self.u, self.limit = u / size, mu.tilted_mean(u / size)
        self.cgf = mu.cgf(self.u)
        self.level, self.slip = self.each(
            lambda u, *_: torch.cat(self._rounding(u)[:2], -1), mu.dim + 1
        ).split([1, mu.dim], -1)

    def each(
        self, function: Callable[..., Tensor], *shape: int, chosen: slice = slice(None)
    ) -> Tensor:
        """Evaluate at all (u, T, e of T), one by one where some are outside the domain; infinite
        there and without moments.
        """
        u = self.u[chosen]
        if not len(u):
            return u.new_zeros(0, *shape)
        try:
            return nan_to_inf(function(u, self.limit[chosen], self.slip[chosen]))
        except NoMomentError:
            return u.new_full((len(u), *shape), torch.inf)
        except InvalidArgumentError:
            if len(u) == 1:
                return u.new_full((1, *shape), torch.inf)
            return torch.cat(
                [self.each(function, *shape, chosen=slice(i, i + 1)) for i in range(len(u))]
            )

    def _rounding(self, u: Tensor) -> tuple[Tensor, ...]:
        """(cert.20): ε(1 + t) of shape (query, 1); the rounding e of ∇Λ(u), and scales of second
        and fourth moments, (query, d).
        """
        size, scale = self.mu._scales(u)
        t = (u.abs() * size).sum(-1, keepdim=True)
        return (
            self.unit * (1 + t),
            self.unit * (size + t * scale),
            scale,
            scale if self.mu.relative_precision else size,
        )

    def read(self, j: float, V: Tensor) -> Reading:
        """What V reads of the tilt by ju."""

        def columns(u: Tensor, limit: Tensor, slip: Tensor) -> Tensor:
            tilt = j * u
            shift, covariance = self.mu.tilted_mean(tilt) - limit, self.mu.tilted_covariance(tilt)
            level, own, scale, wide = self._rounding(tilt)
            # T is the mean of the tilt by u, whatever was computed
            slip = 0 * slip if j == 1 else own + slip
            variance, shift, level = (
                ((V @ covariance) * V).sum(dim=(-2, -1)),
                (shift @ V.mT).abs(),
                level.squeeze(-1),
            )
            slip, scale, wide = (part @ V.abs().mT for part in (slip, scale, wide))
            size, most, least = scale.square().sum(-1), shift + slip, (shift - slip).clamp_min(0.0)
            most, least = most.square().sum(-1), least.square().sum(-1)
            spread, least = (
                variance + level * size + most,
                (variance - level * size).clamp_min(0.0) + least,
            )
            return torch.stack(
                [
                    self.mu.cgf(tilt),
                    spread,
                    least,
                    most,
                    level,
                    size,
                    wide.square().sum(-1),
                    slip.norm(dim=-1),
                ],
                -1,
            )

        cgf, spread, least, most, level, *sizes = self.each(columns, 8).unbind(-1)
        return Reading(
            cgf - j * self.cgf,
            level + abs(j) * self.level.squeeze(-1),
            spread,
            least,
            most,
            level,
            *sizes,
        )

    def reach(self) -> Tensor:
        """A bound of ‖x - T‖ on the support."""
        sizes: Tensor = self.limit.norm(dim=-1) + self.slip.norm(dim=-1)
        return self.mu.support_radius + sizes.clamp_max(self.mu.support_radius)


class Ingredients:
    """Moments of numerator and denominator for one head with values V (o, d), shape (query,);
    infinite where they do not exist.
    """

    def __init__(self, moments: TiltedMoments, V: Tensor) -> None:
        mu, each = moments.mu, moments.each
        image, norm = mu.map(V), torch.linalg.matrix_norm(V, 2)
        self.readings = plain, one, two, three, four = tuple(
            moments.read(float(j), V) for j in range(5)
        )
        both_ways = moments.read(-1.0, V).weight  # e^{Λ(u) + Λ(-u)}
        self.log_rho, self.lost, self.rho = two.log_weight, two.lost, two.weight  # ρ = E ω²
        least = torch.exp(three.log_weight - three.lost) * three.least
        # a_j, a3 from below
        self.numerator = (
            usable(two.weight * two.spread),
            usable(least),
            usable(four.weight * four.spread),
        )
        self.pull = usable(self.rho**2 * two.shift)  # ‖E ω²ζ‖²
        self.second = usable(plain.spread)  # E‖ζ‖² under μ
        # E‖ζ‖⁴ under μ
        self.fourth = plain.fourth(each(lambda _, limit, *__: image.norm_moment4(limit @ V.mT)))
        self.tilted_second = usable(both_ways * one.spread)  # e^{Λ(u) + Λ(-u)} E_u‖ζ‖²
        tilted_fourth = each(lambda u, limit, _: mu.tilt(u).map(V).norm_moment4(limit @ V.mT))
        self.tilted_fourth = usable(both_ways * one.fourth(tilted_fourth))
        # a bound of ‖ζ‖
        self.reach = norm * moments.reach() if float(norm) > 0 else torch.zeros_like(moments.cgf)
        self._moments, self._values, self._fractional = (
            moments,
            V,
            dict[float, tuple[Tensor, Tensor]](),
        )

    def fractional(self, order: float) -> tuple[Tensor, Tensor]:
        """E ω^p and a bound of E ω^p‖ζ‖^p for 1 < p < 2, formula (cert.10); all
        lengths share them.
        """
        if order not in self._fractional:
            read = self._moments.read(order, self._values)
            self._fractional[order] = read.weight, usable(read.weight * read.spread ** (order / 2))
        return self._fractional[order]
