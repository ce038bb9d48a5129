"""Least risks of one softmax head, and of a pair with opposite tilts, exact at every length.

Tilts are a x_q, Σ = I, W = I/d and Σ_q a multiple of I. The y coordinate of the output has the
second moment X V2 + G/d given the scale σ of the scores: formula (risk.15) of
docs/mathematics/regression.md. X and G do not depend on dimension, noise or tilt.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import torch
from numpy.typing import NDArray

from largeprompt.law import collision_moments
from largeprompt.studies.softmax_vs_linear.opposite import opposite_overlap
from largeprompt.training.optima.scan import scan_minimum

Array = NDArray[np.float64]
# of log ‖x_q‖: the trapezoid rule errs by |Γ(d/2 + iπ/STEP)/Γ(d/2)|, 1e-8 at d = 10 and 1e-6 at 20
STEP = 0.16
SMALLEST, VANISHING = 5e-3, 1e-7  # scales below which the first order in σ² is used, or nothing
MARGIN = 4.0  # how far beyond √d the lattice reaches: ‖x_q‖ is larger with probability below 1e-4


@dataclasses.dataclass(frozen=True, eq=False)
class Lattice:
    """Moments by the scale σ of the scores, equidistant in its logarithm: 1 - E Y, X and G.

    X = E Y and G = σ²(1 - E Y - 6 E W_3 + 6 E Y²) of one head, or those of the odd part
    (T(u) - T(-u))/2.
    """

    scales: Array
    shrink: Array
    overlap: Array
    along: Array

    @classmethod
    def of(cls, length: float, largest: float, *, pair: bool = False) -> Lattice:
        """Moments of L tokens for scales up to ``largest``."""
        scales = np.exp(np.arange(math.log(SMALLEST), math.log(largest) + 1e-9, STEP))
        sigma = torch.from_numpy(scales)
        y, w3, y2 = collision_moments(length, sigma)
        overlap = y.numpy()
        along = (sigma**2 * (1 - y - 6 * w3 + 6 * y2)).numpy()
        if pair:
            x, g = opposite_overlap(length, scales)
            overlap, along = (overlap - x) / 2, (along - g) / 2
        steps = np.arange(math.ceil(math.log(SMALLEST / VANISHING) / STEP), 0, -1)
        tiny = scales[0] * np.exp(-STEP * steps)
        grown = (tiny / scales[0]) ** 2
        return cls(
            np.append(tiny, scales),
            np.append(0 * tiny + 1 - float(y[0]), 1 - y.numpy()),
            np.append(overlap[0] * (grown if pair else 1 + 0 * grown), overlap),
            np.append(along[0] * grown, along),
        )

    def radii(self, dim: int, tilt: float) -> tuple[Array, Array]:
        """Lengths r of a normal vector with ``tilt`` r on the lattice, and their weights."""
        r = self.scales / tilt
        log_weight = dim * np.log(r) - r**2 / 2 - math.lgamma(dim / 2)
        weight = np.exp(log_weight - (dim / 2 - 1) * math.log(2)) * STEP
        weight[0] += max(0.0, 1 - weight.sum())  # shorter vectors: nothing depends on them any more
        return r, weight

    def moments(self, dim: int, noise: float, tilt: float) -> tuple[float, float, float]:
        """E t², E rt and E r² of the read-out r at b = 1, Σ_q = I."""
        r, weight = self.radii(dim, tilt)
        mixed = tilt / dim * float(weight @ (r**2 * self.shrink))
        square = float(weight @ ((1 + noise) * self.overlap + self.along / dim))
        # E t² over the same points, so that what is left of it for long prompts is not their error
        return float(weight @ r**2) / dim, mixed, square

    def grid(self, dim: int) -> Array:
        """Logarithms of tilts for which the lattice covers the lengths of the queries."""
        high = math.log(float(self.scales[-1]) / (math.sqrt(dim) + MARGIN) * (1 - 1e-9))
        return np.linspace(min(high - 6.0, -5.0), high, 65)

    def least_excess(self, dim: int, noise: float) -> float:
        """Least 2R - s² over E t², over the tilt and the read-out."""

        def excess(log_tilt: float) -> float:
            total, mixed, square = self.moments(dim, noise, math.exp(log_tilt))
            return total - mixed**2 / square

        return scan_minimum(excess, self.grid(dim))[1]
