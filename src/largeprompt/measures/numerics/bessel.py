"""Ratios of modified Bessel functions and log 0F1, for any order and argument, under autograd.

With ν >= -1/2 and y = k² >= 0 the two functions are

    log_hyp0f1(y, ν) = log 0F1(; ν+1; y/4) = log(Γ(ν+1) (2/k)^ν I_ν(k)),
    bessel_ratio(y, ν) = I_{ν+1}(k) / (k I_ν(k)) =: B_ν,

both smooth in y at 0, with d log_hyp0f1/dy = B_ν/2 and dB_ν/dy = B_ν (B_{ν+1} - B_ν)/2. SciPy's ``iv`` and ``ive`` under- or
overflow for the orders of high dimensions (d = 10,000 is ν = 4999), so neither their ratio nor their logarithm can be used.

Method: I_{ν+1}/I_ν satisfies B_j = 1/(2(j+1) + y B_{j+1}), which contracts errors when run towards smaller j. It starts at an order
of at least 48 + ν, from Debye's uniform expansion (k above the order) or Amos' approximation (below).
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

LARGE_ORDER = 48  # from here on ten Debye terms are exact to double precision
TERMS = 10
STEPS = 24  # recursion steps: errors shrink by at least 0.17 each where the start is approximate


@functools.cache
def _debye_polynomials() -> tuple[tuple[tuple[float, ...], ...], tuple[tuple[float, ...], ...]]:
    """Coefficients (in p, ascending) of Debye's polynomials U_j and V_j, j < TERMS, from their recurrence in exact fractions.

    U_{j+1} = p²(1-p²)U_j'/2 + ∫_0^p (1-5t²)U_j(t)dt/8,   V_{j+1} = U_{j+1} - p(1-p²)U_j/2 - p²(1-p²)U_j'.
    """

    def add(degree: int, value: Fraction, into: dict[int, Fraction]) -> None:
        into[degree] = into.get(degree, Fraction(0)) + value

    us: list[dict[int, Fraction]] = [{0: Fraction(1)}]
    vs: list[dict[int, Fraction]] = [{0: Fraction(1)}]
    for _ in range(TERMS - 1):
        u: dict[int, Fraction] = {}
        rest: dict[int, Fraction] = {}
        for n, c in us[-1].items():
            add(n + 1, n * c / 2 + c / (8 * (n + 1)), u)
            add(n + 3, -n * c / 2 - 5 * c / (8 * (n + 3)), u)
            add(n + 1, -c / 2 - n * c, rest)
            add(n + 3, c / 2 + n * c, rest)
        v = dict(u)
        for n, c in rest.items():
            add(n, c, v)
        us.append(u)
        vs.append(v)

    def dense(polynomials: list[dict[int, Fraction]]) -> tuple[tuple[float, ...], ...]:
        return tuple(tuple(float(p.get(n, 0)) for n in range(3 * TERMS)) for p in polynomials)

    return dense(us), dense(vs)


def _debye_sum(polynomials: tuple[tuple[float, ...], ...], p: Tensor, order: float) -> Tensor:
    """Σ_{j>=1} P_j(p)/order^j, without the leading one."""
    coefficients = [math.fsum(row[n] / order**j for j, row in enumerate(polynomials) if j) for n in range(3 * TERMS)]
    total = torch.zeros_like(p)
    for c in reversed(coefficients):
        total = total * p + c
    return total


def _ratios(y: Tensor, order: float, steps: int) -> list[Tensor]:
    """B_order, B_{order+1}, ..., B_{order+steps-1} by downward recursion."""
    top = order + steps
    z2 = y / top**2
    s = torch.sqrt(1 + z2)
    us, vs = _debye_polynomials()
    debye = (s * (1 + _debye_sum(vs, 1 / s, top)) / (1 + _debye_sum(us, 1 / s, top)) - 1) / (top * z2)
    ratio = torch.where(z2 < 1, 1 / (top + 1 + torch.sqrt((top + 1) ** 2 + y)), debye)
    ratios = []
    for j in reversed(range(steps)):
        ratio = 1 / (2 * (order + j + 1) + y * ratio)
        ratios.append(ratio)
    return ratios[::-1]


def _steps(order: float) -> int:
    return max(STEPS, math.ceil(LARGE_ORDER - order))


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
    correction = stirling + torch.log1p(_debye_sum(_debye_polynomials()[0], 1 / s, top))
    value = top * (w - torch.log1p(w / 2)) - torch.log(s) / 2 + correction
    for j, ratio in enumerate(_ratios(far, order, steps + STEPS)[:steps]):
        value = value - torch.log(2 * (order + j + 1) * ratio)
    return torch.where(near, torch.log1p(total), value)


class _BesselRatio(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, order: float) -> Tensor:
        ctx.save_for_backward(y)
        ctx.order = order
        return _ratios(y.to(torch.float64), order, _steps(order))[0].to(y.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (y,) = ctx.saved_tensors
        ratio, following = bessel_ratio(y, ctx.order), bessel_ratio(y, ctx.order + 1)
        return gradients[0] * ratio * (following - ratio) / 2, None


class _LogHyp0F1(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, order: float) -> Tensor:
        ctx.save_for_backward(y)
        ctx.order = order
        return _log_hyp0f1(y.to(torch.float64), order).to(y.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (y,) = ctx.saved_tensors
        return gradients[0] * bessel_ratio(y, ctx.order) / 2, None


def bessel_ratio(y: Tensor, order: float) -> Tensor:
    """I_{ν+1}(k)/(k I_ν(k)) at y = k², ν = order >= -1/2; 1/(2ν+2) at 0 and ~ 1/k far out."""
    return _BesselRatio.apply(y, order)  # type: ignore[no-any-return, no-untyped-call]


def log_hyp0f1(y: Tensor, order: float) -> Tensor:
    """log 0F1(; ν+1; y/4) = log(Γ(ν+1) (2/k)^ν I_ν(k)) at y = k², ν = order >= -1/2; y/(4ν+4) near 0 and ~ k far out."""
    return _LogHyp0F1.apply(y, order)  # type: ignore[no-any-return, no-untyped-call]
