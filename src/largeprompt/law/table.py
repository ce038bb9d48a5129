"""The two weight moments in the law of Gaussian tokens as smooth functions of the score variance,
tabulated for each length.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from largeprompt.law.quadrature import Product
from largeprompt.law.weights import weight_moments

COLLISIONS: tuple[Product, ...] = (((2, 0),), ((3, 0),), ((2, 0), (2, 0)))  # Y, W3 and Y²
Orders = tuple[Tensor, ...]  # a function of q and its derivatives
DEGREE = 15
END = 12  # of log(1 + q)
FROZEN = math.expm1(END)  # beyond this score variance one token is read, whatever L

_ANGLES = (np.arange(DEGREE + 1) + 0.5) * math.pi / (DEGREE + 1)
_NODES = np.cos(_ANGLES)  # Chebyshev's, of a cell -1 <= x <= 1
# from values to coefficients of T_k
_TRANSFORM = 2 / (DEGREE + 1) * np.cos(np.outer(np.arange(DEGREE + 1), _ANGLES))
_TRANSFORM[0] /= 2
_POWERS = np.stack(
    [
        np.pad(np.polynomial.chebyshev.cheb2poly(row[: k + 1]), (0, DEGREE - k))
        for k, row in enumerate(np.eye(DEGREE + 1))
    ],
    -1,
)


def _edges(longest: float) -> NDArray[np.float64]:
    """Ends of cells of log(1 + q): from 10^6 tokens f turns sharply up to a larger q."""
    turn = 4 if longest >= 1e6 else 3
    fine, middle = np.arange(0, turn, 0.25), np.arange(turn, turn + 1, 0.5)
    return np.concatenate([fine, middle, np.arange(turn + 1.0, END + 1)])


@functools.lru_cache(maxsize=2**14)
def _cell(length: float, low: float, high: float) -> Tensor:
    """Coefficients in x of log Lf and h/f in one cell, shape (DEGREE + 1, 2): the exact law."""
    y = low + (high - low) * (_NODES + 1) / 2
    f, w3, y2 = weight_moments(length, torch.from_numpy(np.sqrt(np.expm1(y))), COLLISIONS)
    values = torch.stack([(f * length).log(), (w3 - y2) / f], -1).numpy()
    # in two steps: their product would lose five digits
    return torch.from_numpy(_POWERS @ (_TRANSFORM @ values))


@dataclasses.dataclass(frozen=True, eq=False)
class WeightTables:
    """f(q) = E Y and h(q) = E[W3 - Y²] for several lengths: polynomials for log Lf and h/f in cells
    of log(1 + q).

    Values are good to 1e-12 of f, first derivatives in q to 1e-10 and second ones to 1e-8. Beyond
    q = 162,754 softmax reads one token, and both functions are continued by their powers of q.
    """

    lengths: tuple[float, ...]
    edges: Tensor  # of all cells
    coefficients: Tensor  # (DEGREE + 1, 2, length, cell), of the first cells

    @classmethod
    def reaching(cls, lengths: Sequence[float], needed: float) -> WeightTables:
        """Tables that cover score variances up to ``needed``."""
        edges = _edges(max(lengths))
        cells = list(
            itertools.pairwise(
                edges[: int(np.searchsorted(edges[1:-1], math.log1p(needed))) + 2].tolist()
            )
        )
        rows = {
            n: torch.stack([_cell(n, *cell) for cell in cells], -1) for n in dict.fromkeys(lengths)
        }
        return cls(
            tuple(lengths),
            torch.from_numpy(edges),
            torch.stack([rows[length] for length in lengths], 2),
        )

    def __call__(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """f(q) and h(q) for q of shape (length, ...); differentiable."""
        f, h = self.derivatives(q.detach(), 2)
        return _Smooth.apply(q, *f), _Smooth.apply(q, *h)  # type: ignore[no-untyped-call]

    def derivatives(self, q: Tensor, order: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """f, f', ... and h, h', ... in q up to the first or second order, without autograd."""
        edges, coefficients = self.edges.to(q.device), self.coefficients.to(q.device)
        inside = q.clamp_max(FROZEN)
        y = torch.log1p(inside)
        cell = torch.searchsorted(edges[1 : coefficients.shape[-1]], y)
        flat = cell.reshape(1, len(self.lengths), -1).expand(2, -1, -1)
        low, high = edges[cell], edges[cell + 1]
        x = (2 * y - low - high) / (high - low)
        value, slope, bend = (q.new_zeros(2, *q.shape) for _ in range(3))
        for table in coefficients.flip(0):  # Horner's scheme with its derivatives
            if order > 1:
                bend = torch.addcmul(slope, bend, x)
            slope = torch.addcmul(value, slope, x)
            value = torch.addcmul(table.gather(-1, flat).reshape(2, *q.shape), value, x)
        rate = 2 / ((high - low) * (1 + inside))  # dx/dq; d²x/dq² = -rate/(1 + q)
        (log_f, ratio), (log_f1, ratio1) = value, slope * rate
        f = torch.exp(log_f) / q.new_tensor(self.lengths).reshape(-1, *(1,) * (q.dim() - 1))
        f1 = f * log_f1
        first: tuple[Orders, Orders] = ((f, f1), (f * ratio, f1 * ratio + f * ratio1))
        if order > 1:
            log_f2, ratio2 = 2 * bend * rate**2 - slope * rate / (1 + inside)
            f2 = f * (log_f2 + log_f1**2)
            first = (
                (f, f1, f2),
                (f * ratio, f1 * ratio + f * ratio1, f2 * ratio + 2 * f1 * ratio1 + f * ratio2),
            )
        return _continued(*first, q)


def _continued(f: Orders, h: Orders, q: Tensor) -> tuple[Orders, Orders]:
    """Beyond the table: powers -1/2, -3/2 of q for 1 - f, and -1, -3/2 for 1 - f - 6h."""
    far = q > FROZEN
    if not bool(far.any()):
        return f, h
    u = _powers(1 - f[0], -f[1] * FROZEN, (0.5, 1.5), q)
    r = _powers(1 - f[0] - 6 * h[0], -(f[1] + 6 * h[1]) * FROZEN, (1.0, 1.5), q)
    f_far = (1 - u[0], -u[1], -u[2])
    h_far = tuple((one - other) / 6 for one, other in zip(u, r, strict=True))
    f, h = (
        tuple(torch.where(far, *each) for each in zip(*both, strict=False))
        for both in ((f_far, f), (h_far, h))
    )
    return f, h


def _powers(value: Tensor, slope: Tensor, powers: tuple[float, float], q: Tensor) -> Orders:
    """Two powers of FROZEN/q with that value and slope in log q there, and two derivatives."""
    k, n = powers
    last = -(slope + k * value) / (n - k)
    first, last = (value - last) * (FROZEN / q) ** k, last * (FROZEN / q) ** n
    return (
        first + last,
        -(k * first + n * last) / q,
        (k * (k + 1) * first + n * (n + 1) * last) / q**2,
    )


class _Smooth(torch.autograd.Function):
    """A function of q whose first two derivatives are known."""

    @staticmethod
    def forward(q, *orders):  # type: ignore[no-untyped-def]
        return orders[0].clone()

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(inputs[0], *inputs[2:])

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        q, *orders = ctx.saved_tensors
        slope = _Smooth.apply(q, *orders) if len(orders) > 1 else orders[0]  # type: ignore[no-untyped-call]
        return gradient * slope, *(None for _ in ctx.saved_tensors)
