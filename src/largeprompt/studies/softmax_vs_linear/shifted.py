"""Regression on prompts with a mean of their own, which a pair of softmax heads centers.

Inputs are x = m + N(0, I) with a new m ~ N(0, τ²I) in every prompt, w ~ N(0, I/d), and the query
has the same m. Linear attention reads (I + mmᵀ)w, and no fixed parameters undo that. The odd part
(T(u) - T(-u))/2 of two heads does not see m: its relative excess is that without shifts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import xarray as xr

from largeprompt.runs.study import Progress
from largeprompt.studies.softmax_vs_linear.lattice import Lattice
from largeprompt.studies.softmax_vs_linear.regression import linear_excess

if TYPE_CHECKING:
    from largeprompt.studies.softmax_vs_linear.study import SoftmaxVsLinearConfig


def shifted_linear_excess(dim: int, tau: float, length: float = math.inf) -> float:
    """Least excess of linear attention, (sel.9) of docs/mathematics/selection.md; ``tau`` is τ²."""
    d, r2 = dim, tau * dim
    r4 = r2 * tau * (d + 2)
    r6 = r4 * tau * (d + 4)
    target = (r2 + d) / d
    mixed = (2 * r2 + d + r4) / d  # E μt, μ = wᵀ(I + mmᵀ)x_q
    square = (r2 + d + 2 * (r4 + r2) + r6 + r4) / d  # E μ²
    # one token: (‖x‖²/d)((x·m)² + ‖x‖²), x = m + z
    fourth = r4 + 2 * d * r2 + d * d + 2 * d + 4 * r2  # E‖x‖⁴
    along = (r6 + 6 * r4 + 3 * r2) + (d - 1) * (r4 + r2)  # E‖x‖²(x·m)²
    spread = (1 - 1 / length) * square + (along + fourth) / d / length
    return (target - mixed**2 / spread) / (1 + tau)


def crossing_length(dim: int, tau: float) -> float:
    """The length from which on a pair with small tilts beats linear attention."""
    from scipy.optimize import brentq

    def lead(log_length: float) -> float:  # of linear attention, lengths taken as real numbers
        length = math.exp(log_length)
        return linear_excess(dim, 0.0, length - 1) - shifted_linear_excess(dim, tau, length)

    low, high = math.log(1.0 + 1e-9), math.log(1e15)
    if lead(high) >= 0:
        return math.inf
    return math.exp(brentq(lead, low, high)) if lead(low) > 0 else 1.0


def shifted(config: SoftmaxVsLinearConfig, length: int, progress: Progress) -> xr.Dataset:
    """Least excess of linear attention and of a pair at one length, and the predicted lines."""
    progress(f"prompts with their own mean, L = {length:g}")
    dims, taus = config.shift_dims, config.shift_variances
    lattice = Lattice.of(length, config.largest_scale, pair=True)
    grid = ("shift_dim", "shift_variance")

    def table(of: Callable[[int, float], float]) -> list[list[float]]:
        return [[of(d, tau) for tau in taus] for d in dims]

    return xr.Dataset(
        {
            "shift_linear": (grid, table(lambda d, tau: shifted_linear_excess(d, tau, length))),
            "shift_pair": ("shift_dim", [lattice.least_excess(d, 0.0) for d in dims]),
        },
        coords={
            "shift_dim": list(dims),
            "shift_variance": list(taus),
            "shift_floor": (grid, table(shifted_linear_excess)),
            "shift_crossing": (grid, table(crossing_length)),
        },
    )
