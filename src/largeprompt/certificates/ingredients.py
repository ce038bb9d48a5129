"""The finite quantities that a certificate is made of, for every query at once.

With ω = e^{u·x - Λ(u)}, T = ∇Λ(u) and ζ = V(x - T), as in docs/mathematics/certificates.md: E ω^j f = e^{Λ(ju) - jΛ(u)} E_{ju} f.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from largeprompt.errors import InvalidArgumentError, NoMomentError
from largeprompt.measures import Measure

COVERED = 128.0  # sums of cgfs up to this size are exact to within half of what outward rounding adds
ORDINARY = 100  # tokens between 2^-100 and 2^100 have fourth moments within the range of double precision


def binary_exponent(values: Tensor, dim: tuple[int, ...]) -> Tensor:
    """e with max|values| about 2^e, for scaling without rounding; 0 where all vanish."""
    return torch.frexp(values.abs().amax(dim))[1].clamp(-1000, 1000).to(values.dtype)


def rescaled(values: Tensor, exponent: Tensor) -> Tensor:
    """values·4^exponent, where what is positive stays so."""
    factor = torch.exp2(exponent.clamp(-1000, 1000))
    result = values * factor * factor
    return torch.where(values > 0, result.clamp_min(torch.finfo(result.dtype).tiny), result)


def nan_to_inf(values: Tensor) -> Tensor:
    """Infinity, which bounds everything, in place of the NaN that inf - inf or inf times 0 makes."""
    return torch.where(torch.isnan(values), torch.inf, values)


def usable(moments: Tensor) -> Tensor:
    """Nonnegative moments as they are; infinity in place of NaN, and of a negative value, of which rounding has left nothing."""
    return torch.where(moments >= 0, moments, torch.inf)


def lost(first: Tensor, second: Tensor) -> Tensor:
    """What rounding may take off the sum of two large cgfs, beyond what outward rounding covers."""
    return 4 * torch.finfo(first.dtype).eps * (first.abs() + second.abs() - COVERED).clamp_min(0.0)


def exponential(first: Tensor, second: Tensor) -> Tensor:
    """e^{first + second}, rounded up by what a difference of large cgfs may have lost; infinite where nothing is left of it."""
    return nan_to_inf(torch.exp(first + second + lost(first, second)))


def trace(matrix: Tensor) -> Tensor:
    """Trace of (..., n, n) matrices."""
    return matrix.diagonal(dim1=-2, dim2=-1).sum(-1)


class TiltedMoments:
    """Moments of a law under the tilts ju, around T = ∇Λ(u), for u of shape (query, d): each of shape (query,).

    Tokens are centred, so that no digits are lost to a large mean, and divided by 2^exponent where they are huge or tiny.
    """

    def __init__(self, mu: Measure, u: Tensor) -> None:
        self.mu, self.u, self.limit = mu, u, mu.tilted_mean(u)
        spread = self.each(lambda u, _: trace(mu.covariance).expand(len(u)))
        self.exponent = (
            binary_exponent(torch.where(torch.isfinite(spread), spread, 0.0).sqrt(), (0,)) if len(u) else u.new_zeros(())
        )
        if abs(float(self.exponent)) < ORDINARY:
            self.exponent = torch.zeros_like(self.exponent)
        centre = mu.mean
        if bool((centre != 0).any()) or float(self.exponent) != 0:
            size = torch.exp2(-self.exponent)
            self.mu = mu = mu.map(size * torch.eye(mu.dim, dtype=u.dtype, device=u.device), -size * centre)
            self.u, self.limit = u / size, mu.tilted_mean(u / size)
        self.cgf = mu.cgf(self.u)

    def each(self, function: Callable[[Tensor, Tensor], Tensor], chosen: slice = slice(None)) -> Tensor:
        """Evaluate at all (u, T), one by one where some lie outside the domain or overflow; infinite there and without moments."""
        u = self.u[chosen]
        if not len(u):
            return u.new_zeros(0)
        try:
            return nan_to_inf(function(u, self.limit[chosen]))
        except NoMomentError:
            return u.new_full((len(u),), torch.inf)
        except InvalidArgumentError:
            if len(u) == 1:
                return u.new_full((1,), torch.inf)
            return torch.cat([self.each(function, slice(i, i + 1)) for i in range(len(u))])

    def cgf_at(self, j: float) -> Tensor:
        """Λ(ju)."""
        return self.each(lambda u, _: self.mu.cgf(j * u))

    def weight(self, j: float) -> Tensor:
        """E ω^j = e^{Λ(ju) - jΛ(u)}."""
        return exponential(self.cgf_at(j), -j * self.cgf)

    def spread(self, j: float, V: Tensor | None = None) -> Tensor:
        """E_{ju}‖V(x - T)‖² = tr V∇²Λ(ju)V^T + ‖V(∇Λ(ju) - T)‖², with what rounding may take off a difference of means."""

        def size(u: Tensor, limit: Tensor) -> Tensor:
            mean, covariance = self.mu.tilted_mean(j * u), self.mu.tilted_covariance(j * u)
            shift, rounding = mean - limit, 4 * torch.finfo(u.dtype).eps * (mean.abs() + limit.abs())
            if V is not None:
                shift, rounding, covariance = shift @ V.mT, rounding @ V.abs().mT, V @ covariance @ V.mT
            return trace(covariance) + (shift.abs() + rounding).square().sum(-1)

        return self.each(size)

    def numerator(self, j: float, V: Tensor | None = None) -> Tensor:
        """a_j = E ω^j‖V(x - T)‖², formula (cert.7)."""
        return usable(self.weight(j) * self.spread(j, V))

    def reach(self) -> Tensor:
        """A bound of ‖x - T‖ on the support."""
        sizes: Tensor = self.limit.norm(dim=-1)
        return self.mu.support_radius + sizes


class Ingredients:
    """Moments of numerator and denominator for one head with values V (o, d), shape (query,); infinite where they do not exist."""

    def __init__(self, moments: TiltedMoments, V: Tensor) -> None:
        mu, each = moments.mu, moments.each
        image, norm = mu.map(V), torch.linalg.matrix_norm(V, 2)
        both_ways = exponential(moments.cgf, moments.cgf_at(-1.0))  # e^{Λ(u) + Λ(-u)}

        def second(u: Tensor, limit: Tensor) -> Tensor:
            return trace(V @ mu.covariance @ V.mT) + (mu.mean @ V.mT - limit @ V.mT).square().sum(-1)

        pull = each(lambda u, limit: ((mu.tilted_mean(2 * u) - limit) @ V.mT).square().sum(-1))
        tilted_second = each(lambda u, _: trace(V @ mu.tilted_covariance(u) @ V.mT))
        tilted_fourth = each(lambda u, limit: mu.tilt(u).map(V).norm_moment4(limit @ V.mT))
        self.log_rho = moments.cgf_at(2.0) - 2 * moments.cgf
        self.lost = lost(moments.cgf_at(2.0), 2 * moments.cgf)  # of its digits
        self.rho = moments.weight(2.0)  # E ω²
        self.numerator = [moments.numerator(j, V) for j in (2.0, 3.0, 4.0)]  # a_j = E ω^j‖ζ‖²
        self.pull = usable(self.rho**2 * pull)  # ‖E ω²ζ‖²
        self.second = usable(each(second))  # E‖ζ‖² under μ
        self.fourth = usable(each(lambda _, limit: image.norm_moment4(limit @ V.mT)))  # E‖ζ‖⁴ under μ
        self.tilted_second = usable(both_ways * tilted_second)  # e^{Λ(u) + Λ(-u)} E_u‖ζ‖²
        self.tilted_fourth = usable(both_ways * tilted_fourth)
        self.reach = norm * moments.reach() if float(norm) > 0 else torch.zeros_like(moments.cgf)  # a bound of ‖ζ‖
        self._moments, self._values, self._fractional = moments, V, dict[float, tuple[Tensor, Tensor]]()

    def fractional(self, order: float) -> tuple[Tensor, Tensor]:
        """E ω^p and a bound of E ω^p‖ζ‖^p for 1 < p < 2, formula (cert.10); all lengths share them."""
        if order not in self._fractional:
            weight = self._moments.weight(order)
            spread = self._moments.spread(order, self._values)
            self._fractional[order] = weight, usable(weight * spread ** (order / 2))
        return self._fractional[order]
