"""Special functions that measures need, exact near zero, far out, and under autograd."""

import functools
import math

import torch
from torch import Tensor

from largeprompt import validation

# of the powers of 1/z in Stirling's series: B_2k/(2k(2k-1))
STIRLING = (
    1 / 12,
    0,
    -1 / 360,
    0,
    1 / 1260,
    0,
    -1 / 1680,
    0,
    1 / 1188,
    0,
    -691 / 360360,
    0,
    1 / 156,
)


def _scaled_terms(weights: Tensor, exponents: Tensor) -> tuple[Tensor, Tensor]:
    """Return m = largest exponent of positive weight, and weights_k e^{exponents_k - m}."""
    largest = torch.where(weights > 0, exponents.real, -torch.inf).amax(-1, keepdim=True).detach()
    # a zero weight with a larger exponent must not overflow to 0 · inf
    over = (exponents.real - largest - 60.0).clamp_min(0.0)
    return largest, weights * torch.exp(exponents - largest - over)


def log_sum(weights: Tensor, exponents: Tensor) -> Tensor:
    """log Σ_k weights_k e^{exponents_k} over the last axis, real or complex; weights may be 0."""
    largest, terms = _scaled_terms(weights, exponents)
    return largest.squeeze(-1) + torch.log(terms.sum(-1))


def weighted_softmax(weights: Tensor, exponents: Tensor) -> Tensor:
    """weights_k e^{exponents_k} divided by their sum over the last axis."""
    _, terms = _scaled_terms(weights, exponents)
    return terms / terms.sum(-1, keepdim=True)


def log1p(z: Tensor) -> Tensor:
    """log(1 + z); at complex z by real functions, which cost a third of the complex ones."""
    if not z.is_complex():
        return torch.log1p(z)
    return torch.complex(
        torch.log1p(2 * z.real + z.real**2 + z.imag**2) / 2, torch.atan2(z.imag, 1 + z.real)
    )


def log_gamma(z: Tensor) -> Tensor:
    """log Γ(z) at real or complex z, up to multiples of 2πi: for Gumbel, logistic and gamma laws.

    Stirling's series ten steps up, differentiable as often as needed; ``torch.lgamma`` takes no
    complex numbers. Infinite at real z <= 0, where such a cgf is.

    Examples
    --------
    The logistic law, log Γ(1 + u) + log Γ(1 - u), at u = 1/2:

    >>> torch.exp(lp.measures.log_gamma(1.5) + lp.measures.log_gamma(0.5))  # π/2
    tensor(1.5708, dtype=torch.float64)
    """
    z = z if isinstance(z, Tensor) and z.is_complex() else validation.tensor("z", z)
    above, series = z + 10, torch.zeros_like(z)
    for coefficient in reversed(STIRLING):
        series = (series + coefficient) / above
    rest = (above - 0.5) * torch.log(above) - above + 0.5 * math.log(2 * math.pi) + series
    found = rest - sum(torch.log(z + step) for step in range(10))
    return found if z.is_complex() else torch.where(z > 0, found, torch.inf)


def sech2(x: Tensor) -> Tensor:
    """1/cosh² x, the derivative of tanh, with full relative accuracy far out."""
    e = torch.exp(-2 * x.abs())
    return 4 * e / (1 + e) ** 2


def sign_derivatives(w: Tensor, order: int) -> tuple[Tensor, ...]:
    """log cosh w and its first derivatives, four at most, at real or complex w."""
    right = torch.where(w.real < 0, -w, w)  # cosh is even
    e = torch.exp(-2 * right)
    # where they follow from what is small about them
    near = w.abs() < (0.03 if w.is_complex() else 1.0)
    looked = bool(near.any())
    value = right + log1p(e) - math.log(2)
    if looked:
        value = value.masked_scatter(near, log1p(2 * torch.sinh(w[near] / 2) ** 2))
    if order == 0:
        return (value,)
    first = torch.where(w.real < 0, -1.0, 1.0).to(w.dtype) * (1 - e) / (1 + e)
    if looked:
        first = first.masked_scatter(near, torch.tanh(w[near]))
    second = 4 * e / (1 + e) ** 2
    return (value, first, second, -2 * first * second, second * (6 * first**2 - 2))[: order + 1]


@functools.cache
def _sinhc_series() -> Tensor:
    """log(sinh(y)/y) = Σ (-1)^{n+1} ζ(2n)/(n π^{2n}) y^{2n} and derivatives, over y², y, 1, y, 1.

    A row for each power of y², the highest first, for abs(y) < 0.7.
    """
    from scipy.special import zeta

    known = [(-1) ** (n + 1) * float(zeta(2 * n)) / (n * math.pi ** (2 * n)) for n in range(1, 21)]
    columns = [
        [math.perm(2 * n, i) * c for n, c in enumerate(known, 1) if 2 * n >= i] for i in range(5)
    ]
    rows = ([*column, 0.0][n] if n <= len(column) else 0.0 for n in range(20) for column in columns)
    return torch.tensor([*rows], dtype=torch.float64).reshape(20, 5).flip(0)


def interval_derivatives(y: Tensor, order: int) -> tuple[Tensor, ...]:
    """log(sinh(y)/y) and its first derivatives, four at most, at real or complex y."""
    near = y.abs() < 0.7
    small, large = y[near], torch.where(near, 1.0, torch.where(y.real < 0, -y, y))
    square, series = small**2, y.new_zeros(order + 1, small.numel())
    for row in _sinhc_series().to(y)[:, : order + 1, None] if small.numel() else ():
        series = series * square + row
    e, side = torch.exp(-2 * large), torch.where(y.real < 0, -1.0, 1.0).to(y.dtype)
    far = [large + torch.log((1 - e) / (2 * large))]
    if order > 0:
        coth, inverse = (1 + e) / (1 - e), 1 / large
        far.append(side * (coth - inverse))
    if order > 1:
        square_inverse, csch2 = inverse * inverse, 4 * e / (1 - e) ** 2
        far.append(square_inverse - csch2)
    if order > 2:
        far.append(side * (2 * coth * csch2 - 2 * inverse * square_inverse))
        far.append(6 * square_inverse**2 - 2 * csch2**2 - 4 * coth**2 * csch2)
    leading = (square, small, 1.0, small, 1.0)
    return tuple(
        b.masked_scatter(near, a * factor)
        for a, b, factor in zip(series, far, leading, strict=False)
    )
