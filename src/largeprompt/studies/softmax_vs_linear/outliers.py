"""Regression where a share p of the answers is noise of variance τ² that carries a mark.

Softmax silences marked tokens: it reads the good ones, a binomial number of them. Linear attention
cannot: its constant grows with τ². Formulas (sel.5-8) of docs/mathematics/selection.md, without
noise, Σ = Σ_q = I and W = I/d.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np
import torch
import xarray as xr

from largeprompt.law.weights import weight_moments
from largeprompt.runs.study import Progress
from largeprompt.studies.softmax_vs_linear.lattice import Array, Lattice
from largeprompt.training.optima.scan import scan_minimum

if TYPE_CHECKING:
    from largeprompt.studies.softmax_vs_linear.study import SoftmaxVsLinearConfig

LARGEST = 12.0  # scale of the scores that is searched
LARGEST_VARIANCE = 1e3  # of outliers without a mark
FEW = 64  # tokens up to which each number of good ones is taken by itself


def linear_constant(dim: int, share: float, variance: float) -> float:
    """L c, where the best linear attention has the excess c/(1 + c): formula (sel.6)."""
    good = 1 - share
    return (dim + 2) / good + share * variance * dim / good**2 - 1


def long_prompt_crossing(dim: int, share: float) -> float:
    """τ² at which both attentions have equal constants on long prompts: formulas (sel.7-8)."""
    from scipy.optimize import minimize_scalar

    def constant(y: float) -> float:
        rest = 1 - 2 * y
        return float(rest ** (-dim / 2) * (1 / y + 1 / rest)) / (1 - share)

    ends = (1e-9, 0.5 - 1e-9)
    found = minimize_scalar(constant, bounds=ends, method="bounded", options={"xatol": 1e-12})
    return _variance(dim, share, float(found.fun))


def _variance(dim: int, share: float, constant: float) -> float:
    """τ² at which linear attention has this constant."""
    lead = constant - linear_constant(dim, share, 0.0)
    return max(0.0, lead * (1 - share) ** 2 / (share * dim))


def good_tokens(length: int, share: float) -> tuple[Array, Array]:
    """Numbers of good tokens and weights: the binomial law, or five that match its moments."""
    from scipy.stats import binom

    law = binom(length, 1 - share)
    if length <= FEW:
        counts: Array = np.arange(1.0, length + 1)
        return counts, law.pmf(counts) / law.pmf(counts).sum()
    mean, deviation = law.mean(), law.std()
    counts = np.unique(np.round(mean + deviation * np.polynomial.hermite_e.hermegauss(5)[0]))
    q, v = share, deviation**2
    third = v * (2 * q - 1)  # central moments of a binomial number
    fourth = 3 * v**2 + v * (1 - 6 * q * (1 - q))
    expected = np.array([1, 0, v, third, fourth]) / deviation ** np.arange(5)
    powers = ((counts - mean) / deviation) ** np.arange(5)[:, None]
    return counts, np.linalg.solve(powers, expected)


def silenced(length: int, share: float) -> Lattice:
    """Moments of one head that does not read outliers."""
    counts, weights = good_tokens(length, share)
    each = [Lattice.of(int(count), LARGEST) for count in counts]
    names = ("shrink", "overlap", "along")
    means = {name: weights @ np.stack([getattr(one, name) for one in each]) for name in names}
    return dataclasses.replace(each[0], **means)


def crossing_variance(dim: int, share: float, length: int) -> float:
    """τ² at which both attentions have equal exact least risks; softmax wins beyond it."""
    excess = silenced(length, share).least_excess(dim, 0.0)
    return _variance(dim, share, length * excess / (1 - excess))


def unmarked_excess(dim: int, share: float, length: int, variance: float) -> float:
    """Least excess of softmax where outliers carry no mark, so that weights cannot see them."""
    good, lattice = 1 - share, Lattice.of(length, LARGEST)
    # E Σ w² ξ²; where scores vanish that of the mean
    square = weight_moments(length, torch.from_numpy(lattice.scales), [[(2, 2)]])[0].numpy()

    def excess(log_tilt: float) -> float:
        tilt = math.exp(log_tilt)
        total, mixed, clean = lattice.moments(dim, 0.0, tilt)
        _, weight = lattice.radii(dim, tilt)
        own = float(weight @ ((1 - 1 / dim) * lattice.overlap + square / dim))
        wild = share * variance * float(weight @ lattice.overlap)
        return total - (good * mixed) ** 2 / (good**2 * clean + good * share * own + wild)

    return scan_minimum(excess, lattice.grid(dim))[1]


def outliers(config: SoftmaxVsLinearConfig, length: int, progress: Progress) -> xr.Dataset:
    """The outlier variance from which on softmax wins, predicted and exact, for each share."""
    dim, shares = config.outlier_dim, config.outlier_shares
    crossing, unmarked = [], []
    for share in shares:
        progress(f"outliers, L = {length:g}, share {share:g}")
        crossing.append(crossing_variance(dim, share, length))
        c = linear_constant(dim, share, LARGEST_VARIANCE) / length
        excess = unmarked_excess(dim, share, length, LARGEST_VARIANCE)
        unmarked.append(excess * (1 + c) / c)
    axis, known = "outlier_share", [long_prompt_crossing(dim, share) for share in shares]
    return xr.Dataset(
        {"outlier_crossing": (axis, crossing), "outlier_unmarked": (axis, unmarked)},
        {axis: list(shares), "outlier_predicted": (axis, known)},
    )
