"""Ratios of modified Bessel functions and log 0F1, for any order and argument, under autograd.

Formula (tilt.9) of docs/mathematics/tilting.md: with y = k² and B_ν = I_{ν+1}(k)/(k I_ν(k)),
d log 0F1(; ν+1; y/4)/dy = B_ν/2 and dB_ν/dy = B_ν (B_{ν+1} - B_ν)/2. SciPy's ``iv`` and ``ive``
under- or overflow at the orders of high dimensions (d = 10,000 is ν = 4999).

B_j = 1/(2(j+1) + y B_{j+1}) contracts errors towards smaller j; it starts at order 48 or more, or
24 orders up, from Debye's uniform expansion (k above the order) or Amos' approximation.
"""

import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

LARGE_ORDER, TERMS = 48, 10  # from this order on ten Debye terms are exact to double precision
STEPS = 24  # recursion steps: errors shrink by at least 0.17 each where the start is approximate


@functools.cache
def _debye_polynomials() -> tuple[list[list[float]], list[list[float]]]:
    """Coefficients (in p, ascending) of Debye's polynomials U_j and V_j, j < TERMS.

    U_{j+1} = p²(1-p²)U_j'/2 + ∫_0^p (1-5t²)U_j(t)dt/8, V_{j+1} = U_{j+1} - p(1-p²)U_j/2 -
    p²(1-p²)U_j', in exact fractions.
    """
    zero, half = Fraction(0), Fraction(1, 2)
    u = v = [Fraction(1)]
    us, vs = [u], [v]
    for _ in range(TERMS - 1):
        # c p^n in U_j is (a + c/(8n+8)) p^{n+1} - (a + 5c/(8n+24)) p^{n+3} in U_{j+1}, a = nc/2,
        # and b (p^{n+3} - p^{n+1}) in V - U
        grown, rest = [zero] * (len(u) + 3), [zero] * (len(u) + 3)
        for n, c in enumerate(u):
            grown[n + 1] += c * (half * n + Fraction(1, 8 * (n + 1)))
            grown[n + 3] -= c * (half * n + Fraction(5, 8 * (n + 3)))
            rest[n + 3] += c * (half + n)
            rest[n + 1] -= c * (half + n)
        u, v = grown, [a + b for a, b in zip(grown, rest, strict=True)]
        us.append(u)
        vs.append(v)
    return tuple(
        [[float(c) for c in p] + [0.0] * (3 * TERMS - len(p)) for p in found] for found in (us, vs)
    )  # type: ignore[return-value]


@functools.lru_cache(maxsize=1024)
def _debye_coefficients(order: float) -> tuple[list[float], list[float]]:
    """Coefficients in p, descending, of Σ_{j>=1} P_j(p)/order^j for P = U and V."""
    found = (
        [math.fsum(row[n] / order**j for j, row in enumerate(rows) if j) for n in range(3 * TERMS)]
        for rows in _debye_polynomials()
    )
    us, vs = (row[::-1] for row in found)
    return us, vs


def _polynomial(coefficients: list[float], p: Tensor) -> Tensor:
    total = torch.zeros_like(p)
    for c in coefficients:
        total = total * p + c
    return total


def _ratios(y: Tensor, order: float, steps: int) -> list[Tensor]:
    """B_order, B_{order+1}, ..., B_{order+steps-1} by downward recursion."""
    top = order + steps
    z2 = y / top**2
    s = torch.sqrt(1 + z2)
    us, vs = _debye_coefficients(top)
    debye = (s * (1 + _polynomial(vs, 1 / s)) / (1 + _polynomial(us, 1 / s)) - 1) / (top * z2)
    ratio = torch.where(z2 < 1, 1 / (top + 1 + torch.sqrt((top + 1) ** 2 + y)), debye)
    ratios = []
    for j in reversed(range(steps)):
        ratio = (2 * (order + j + 1) + y * ratio).reciprocal()
        ratios.append(ratio)
    return ratios[::-1]


def _log_hyp0f1(y: Tensor, order: float) -> Tensor:
    x = y / 4
    near = x <= order + 1
    series, term, total = torch.where(near, x, 0.0), torch.ones_like(x), torch.zeros_like(x)
    for j in range(1, 22):  # positive terms, each below 1/j!
        term = term * series / (j * (order + j))
        total = total + term
    far = torch.where(near, 4.0 * (order + 1), y)
    steps = max(0, math.ceil(LARGE_ORDER - order))
    top = order + steps
    s = torch.sqrt(1 + far / top**2)
    w = far / top**2 / (1 + s)  # s - 1
    stirling = 1 / (12 * top) - 1 / (360 * top**3) + 1 / (1260 * top**5) - 1 / (1680 * top**7)
    correction = stirling + torch.log1p(_polynomial(_debye_coefficients(top)[0], 1 / s))
    value = top * (w - torch.log1p(w / 2)) - torch.log(s) / 2 + correction
    for j, ratio in enumerate(_ratios(far, order, steps + STEPS)[:steps]):
        value = value - torch.log(2 * (order + j + 1) * ratio)
    return torch.where(near, torch.log1p(total), value)


class _Smooth(torch.autograd.Function):
    """A function of (y, order) in float64, and ``pull``, a gradient times its derivative in y."""

    @staticmethod
    def forward(
        ctx: Any, y: Tensor, order: float, value: Callable[..., Tensor], pull: Callable[..., Tensor]
    ) -> Tensor:
        ctx.save_for_backward(y)
        ctx.order, ctx.pull = order, pull
        return value(y.to(torch.float64), order).to(y.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.pull(gradients[0], *ctx.saved_tensors, ctx.order), None, None, None


def _ratio_pull(gradient: Tensor, y: Tensor, order: float) -> Tensor:
    ratio, following = bessel_ratio(y, order), bessel_ratio(y, order + 1)
    return gradient * ratio * (following - ratio) / 2


def bessel_ratio(y: Tensor, order: float) -> Tensor:
    """I_{ν+1}(k)/(k I_ν(k)) at y = k², ν = order >= -1/2; 1/(2ν+2) at 0 and ~ 1/k far out."""
    steps = max(STEPS, math.ceil(LARGE_ORDER - order))
    return _Smooth.apply(y, order, lambda y, order: _ratios(y, order, steps)[0], _ratio_pull)  # type: ignore[no-any-return, no-untyped-call]


def far_slope(k: Tensor, order: float, terms: int = 6) -> Tensor:
    """dA/dk of A = I_{ν+1}(k)/I_ν(k) for k far above ν², from A = 1 + c_1/k + c_2/k² + ...

    The coefficients follow from A' = 1 - A² - (2ν+1)A/k.
    """
    c = [1.0]
    for m in range(1, terms + 1):
        c.append(((m - 2 * order - 2) * c[-1] - sum(c[i] * c[m - i] for i in range(1, m))) / 2)
    total = torch.zeros_like(k)
    for n in range(terms, 0, -1):
        total = total / k - n * c[n]
    return total / k / k


def log_hyp0f1(y: Tensor, order: float) -> Tensor:
    """log 0F1(; ν+1; y/4) = log(Γ(ν+1) (2/k)^ν I_ν(k)) at y = k², ν = order >= -1/2."""
    return _Smooth.apply(y, order, _log_hyp0f1, lambda g, y, order: g * bessel_ratio(y, order) / 2)  # type: ignore[no-any-return, no-untyped-call]


def cosine_reach(power: float) -> float:
    """x beyond which the density ∝ cosh(x)^-power is nothing."""
    return math.acosh(math.exp(42 / power)) if power < 400 else 9.3 / math.sqrt(power)


def complex_log_hyp0f1(y: Tensor, order: float) -> Tensor:
    """log 0F1(; ν+1; y/4) at complex y: the mean of e^{k cos θ}, k = √y, over a sphere.

    With cos θ = tanh x the density is ∝ cosh(x)^{-2ν-1}, and an even grid of x is a trapezoid rule.
    """
    k = torch.sqrt(y)  # of the two roots the one with Re k >= 0; the mean is even in k
    power = 2 * order + 1  # d - 1
    end = cosine_reach(power)
    count = math.ceil(60 + min(4.0, end / 1.5) * float(k.abs().max()) + 25 * end)
    x = torch.linspace(-end, end, 2 * count + 1, dtype=torch.float64, device=y.device)
    weight = torch.softmax(-power * torch.logaddexp(x, -x), 0)
    cosine = torch.tanh(x)
    return k + torch.log((torch.exp(k.unsqueeze(-1) * (cosine - 1)) * weight).sum(-1))
