"""Special functions of one real variable that measures need, exact near zero, far out, and under autograd."""

import functools
import math

import torch
from torch import Tensor

NEAR = 0.03  # size below which functions of signs are found from what is small about them


def _scaled_terms(weights: Tensor, exponents: Tensor) -> tuple[Tensor, Tensor]:
    """Return m = largest exponent of positive weight, and weights_k e^{exponents_k - m}."""
    largest = torch.where(weights > 0, exponents, -torch.inf).amax(-1, keepdim=True).detach()
    # a zero weight with a larger exponent must not overflow to 0 · inf
    return largest, weights * torch.exp((exponents - largest).clamp_max(60.0))


def weighted_logsumexp(weights: Tensor, exponents: Tensor) -> Tensor:
    """log Σ_k weights_k e^{exponents_k} over the last axis; zero weights allowed, differentiable in both arguments."""
    largest, terms = _scaled_terms(weights, exponents)
    return largest.squeeze(-1) + torch.log(terms.sum(-1))


def weighted_softmax(weights: Tensor, exponents: Tensor) -> Tensor:
    """weights_k e^{exponents_k} divided by their sum over the last axis."""
    _, terms = _scaled_terms(weights, exponents)
    return terms / terms.sum(-1, keepdim=True)


def log_sum(weights: Tensor, exponents: Tensor) -> Tensor:
    """log Σ_k weights_k e^{exponents_k} over the last axis, at complex exponents."""
    largest = torch.where(weights > 0, exponents.real, -torch.inf).amax(-1, keepdim=True)
    terms = weights * torch.exp(torch.where(weights > 0, exponents - largest, 0.0))
    return largest.squeeze(-1) + torch.log(terms.sum(-1))


def _apart(x: Tensor, edge: float) -> tuple[Tensor, Tensor, Tensor]:
    """Whether abs(x) < edge, x where it is (else 0), and abs(x) where it is not (else the edge)."""
    near = x.abs() < edge
    return near, torch.where(near, x, 0.0), torch.where(near, edge, x.abs())


def log_cosh(x: Tensor) -> Tensor:
    """log cosh x, with full relative accuracy near 0 (x²/2) and no overflow."""
    near, small, large = _apart(x, 1.0)
    return torch.where(near, torch.log1p(2 * torch.sinh(small / 2) ** 2), large - math.log(2) + torch.log1p(torch.exp(-2 * large)))


def sech2(x: Tensor) -> Tensor:
    """1/cosh² x, the derivative of tanh, without overflow and with full relative accuracy far out."""
    near, small, large = _apart(x, 1.0)
    e = torch.exp(-2 * large)
    return torch.where(near, 1 / torch.cosh(small) ** 2, 4 * e / (1 + e) ** 2)


def log_sinhc(x: Tensor) -> Tensor:
    """log(sinh(x)/x), with full relative accuracy near 0 (x²/6) and no overflow."""
    near, small, large = _apart(x, 2.0)
    square, term, total = small**2, torch.ones_like(x), torch.zeros_like(x)
    for j in range(1, 15):  # sinh(x)/x - 1 = Σ x^{2j}/(2j+1)!; the last term is below 1e-21
        term = term * square / (2 * j * (2 * j + 1))
        total = total + term
    return torch.where(near, torch.log1p(total), large + torch.log1p(-torch.exp(-2 * large)) - torch.log(2 * large))


def _langevin_fractions(square: Tensor) -> tuple[Tensor, Tensor]:
    """Continued fractions B = 1/(3 + y/(5 + y/(7 + ...))) and the same from 5 on, for y = x² below 4."""
    fraction = torch.zeros_like(square)
    for odd in range(35, 3, -2):
        fraction = 1 / (odd + square * fraction)
    return 1 / (3 + square * fraction), fraction


def langevin(x: Tensor) -> Tensor:
    """coth x - 1/x, the derivative of :func:`log_sinhc`; x/3 near 0."""
    near = x.abs() < 2
    small, large = torch.where(near, x, 0.0), torch.where(near, 2.0, x)
    return torch.where(near, small * _langevin_fractions(small**2)[0], 1 / torch.tanh(large) - 1 / large)


def langevin_derivative(x: Tensor) -> Tensor:
    """1/x² - 1/sinh² x, the second derivative of :func:`log_sinhc`; 1/3 near 0."""
    near, small, large = _apart(x, 2.0)
    outer, inner = _langevin_fractions(small**2)
    e = torch.exp(-2 * large)
    return torch.where(near, outer * (1 - small**2 * (outer - inner)), 1 / large**2 - 4 * e / (1 - e) ** 2)


def _log1p(z: Tensor) -> Tensor:
    """log(1 + z) at complex z, by real functions, which cost a third of the complex ones."""
    return torch.complex(torch.log1p(2 * z.real + z.real**2 + z.imag**2) / 2, torch.atan2(z.imag, 1 + z.real))


def sign_cumulants(w: Tensor, order: int) -> tuple[Tensor, ...]:
    """log cosh w and its first ``order`` derivatives, 2 or 4, at complex w, with full relative accuracy near 0."""
    right = torch.where(w.real < 0, -w, w)  # cosh is even
    e = torch.exp(-2 * right)
    near = w.abs() < NEAR
    value = right + _log1p(e) - math.log(2)
    if bool(near.any()):
        value = value.masked_scatter(near, _log1p(2 * torch.sinh(w[near] / 2) ** 2))
    if order == 0:
        return (value,)
    side = torch.where(w.real < 0, -1.0, 1.0)
    first, second = side * (1 - e) / (1 + e), 4 * e / (1 + e) ** 2
    if bool(near.any()):
        first = first.masked_scatter(near, torch.tanh(w[near]))
    if order == 2:
        return value, first, second
    return value, first, second, -2 * first * second, second * (6 * first**2 - 2)


@functools.cache
def _sinhc_series() -> Tensor:
    """Series of log(sinh(y)/y) = Σ (-1)^{n+1} ζ(2n)/(n π^{2n}) y^{2n} and its first four derivatives over y², y, 1, y, 1.

    A row for each power of y², the highest first; the terms left out are below 10^{-18} of the sum for abs(y) < 0.7.
    """
    from scipy.special import zeta

    known = [(-1) ** (n + 1) * float(zeta(2 * n)) / (n * math.pi ** (2 * n)) for n in range(1, 21)]
    columns = [[math.perm(2 * n, i) * c for n, c in enumerate(known, 1) if 2 * n >= i] for i in range(5)]
    return torch.tensor(
        [[column[n] if n < len(column) else 0.0 for column in columns] for n in reversed(range(20))], dtype=torch.float64
    )


def interval_cumulants(y: Tensor, order: int) -> tuple[Tensor, ...]:
    """log(sinh(y)/y) and its first ``order`` derivatives, 2 or 4, at complex y; their series near 0."""
    near = y.abs() < 0.7
    small, large = y[near], torch.where(near, 1.0, torch.where(y.real < 0, -y, y))
    square, series = small**2, y.new_zeros(order + 1, small.numel())
    for row in _sinhc_series().to(y)[:, : order + 1, None] if small.numel() else ():
        series = series * square + row
    e = torch.exp(-2 * large)
    far = [large + torch.log((1 - e) / (2 * large))]
    if order:
        coth, csch2, side = (1 + e) / (1 - e), 4 * e / (1 - e) ** 2, torch.where(y.real < 0, -1.0, 1.0)
        far += [side * (coth - 1 / large), 1 / large**2 - csch2]
    if order > 2:
        far += [side * (2 * coth * csch2 - 2 / large**3), 6 / large**4 - 2 * csch2**2 - 4 * coth**2 * csch2]
    leading = (square, small, 1.0, small, 1.0)
    return tuple(b.masked_scatter(near, a * factor) for a, b, factor in zip(series, far, leading, strict=False))


def sign_mean_less_limit(w: Tensor, u: Tensor) -> Tensor:
    """tanh w - tanh u for complex w and real u: near 0 as sinh(w - u)/(cosh w cosh u), else by both distances to the sign of u.

    These are s·(2/(1 + e^{2su}) - 2/(1 + e^{2sw})).
    """
    side = torch.where(u < 0, -1.0, 1.0).to(u.dtype)
    found = 2 * side * (torch.sigmoid(-2 * side * u) - torch.sigmoid(-2 * side * w))
    near = (w.abs() < NEAR) & (u.abs() < NEAR)
    if bool(near.any()):
        v, limit = w[near], u.expand(w.shape)[near]
        found = found.masked_scatter(near, torch.sinh(v - limit) / (torch.cosh(v) * torch.cosh(limit)))
    return found
