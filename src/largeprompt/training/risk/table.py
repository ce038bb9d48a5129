"""The two weight moments that training needs, as smooth functions of the score variance, tabulated once for each length."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from largeprompt.law import weight_moments

P2, P3, P4 = (2, 0), (3, 0), (4, 0)
NODES_PER_UNIT = 48  # of log(1 + q)
FIRST_RANGE = 16.0  # largest score variance of the first table; doubled when a training run leaves it


@functools.lru_cache(maxsize=512)
def _nodes(length: float, largest: float) -> tuple[Tensor, Tensor]:
    """Values and slopes in y = log(1 + q) of log f and h/f at the nodes, each (2, node); nothing but the exact law."""
    y = torch.linspace(0, math.log1p(largest), math.ceil(math.log1p(largest) * NODES_PER_UNIT) + 1, dtype=torch.float64)
    q = torch.expm1(y)
    products = [(P2,), (P3,), (P2, P2), (P2, P2, P2), (P2, P3), (P4,)]
    f, w3, y2, y3, yw3, p4 = weight_moments(length, q.sqrt(), products)
    h = w3 - y2
    f_slope, h_slope = f - 4 * w3 + 3 * y2, 3 * w3 - 2 * y2 - 10 * y3 + 22 * yw3 - 13 * p4  # derivatives in q
    values = torch.stack([f.log(), h / f])
    return values, torch.stack([f_slope / f, (h_slope * f - h * f_slope) / f**2]) * (1 + q)


@dataclasses.dataclass(frozen=True, eq=False)
class WeightTables:
    """f(q) = E Y and h(q) = E[W3 - Y²] for several lengths, by cubic Hermite interpolation of log f and h/f in log(1 + q).

    Values and slopes are exact at the nodes: formula (law.18) of docs/mathematics/finite_prompt.md. The interpolant is good to 1e-7
    of f, smooth within cells and once differentiable across them: enough for a gradient flow and the Newton steps of its solver.
    """

    lengths: tuple[float, ...]
    largest: float
    step: float
    values: Tensor  # (2, length, node)
    slopes: Tensor

    @classmethod
    def reaching(cls, lengths: Sequence[float], needed: float) -> WeightTables:
        """Tables that cover score variances up to ``needed``: 16 times a power of two, so that few are ever made."""
        largest = FIRST_RANGE
        while largest < needed:
            largest *= 2
        nodes = [_nodes(length, largest) for length in lengths]
        values, slopes = (torch.stack([node[i] for node in nodes], dim=1) for i in (0, 1))
        return cls(tuple(lengths), largest, math.log1p(largest) / (values.shape[-1] - 1), values, slopes)

    def _cubics(self, q: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Position t in the cell, in steps, and the four coefficients of log f and h/f there, each (2, length, ...)."""
        position = torch.log1p(q) / self.step
        cell = position.detach().floor().clamp(0, self.values.shape[-1] - 2).long()
        flat = cell.reshape(1, len(self.lengths), -1).expand(2, -1, -1)

        def at(table: Tensor, offset: int) -> Tensor:
            return table.gather(-1, flat + offset).reshape(2, *q.shape)

        left, change = at(self.values, 0), at(self.values, 1) - at(self.values, 0)
        a, b = at(self.slopes, 0) * self.step, at(self.slopes, 1) * self.step
        return position - cell, (left, a, 3 * change - 2 * a - b, a + b - 2 * change)

    def __call__(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """f(q) and h(q) for q of shape (length, ...), at most ``largest``; differentiable."""
        t, (c0, c1, c2, c3) = self._cubics(q)
        log_f, ratio = c0 + t * (c1 + t * (c2 + t * c3))
        f = torch.exp(log_f)
        return f, f * ratio

    def derivatives(self, q: Tensor, order: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """f, f', ... and h, h', ... in q up to the first or second order, those of the interpolant, without autograd."""
        t, (c0, c1, c2, c3) = self._cubics(q)
        rate = 1 / (self.step * (1 + q))  # dt/dq; d²t/dq² = -rate² step
        log_f, ratio = c0 + t * (c1 + t * (c2 + t * c3))
        in_t = c1 + t * (2 * c2 + 3 * t * c3)
        log_f1, ratio1 = in_t * rate
        f = torch.exp(log_f)
        f1 = f * log_f1
        first = (f, f1), (f * ratio, f1 * ratio + f * ratio1)
        if order == 1:
            return first
        log_f2, ratio2 = ((2 * c2 + 6 * t * c3) - in_t * self.step) * rate**2
        f2 = f * (log_f2 + log_f1**2)
        return (*first[0], f2), (*first[1], f2 * ratio + 2 * f1 * ratio1 + f * ratio2)
