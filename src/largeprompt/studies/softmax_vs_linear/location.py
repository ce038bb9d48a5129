"""One informative token among L: the answer stands in it, and attention has to find it.

Tokens are N(0, I), but x_ε ~ N(√ν k*, I) at one hidden, uniform ε, and the answer is v*·x_ε. The
softmax weights at u = √ν k* are the posterior of ε, so that softmax is Bayes and reads a share
E w_ε of the answer's variance; linear attention reads ν/(ν + L). Formulas (sel.1-4) of
docs/mathematics/selection.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from largeprompt.law.quadrature import (
    Array,
    Range,
    falling_factorial_weight,
    largest_tau,
    log_survival,
    relative_ends,
    widen,
)
from largeprompt.law.weights import Scores, block_expectations
from largeprompt.measures.score_nodes import SCORE_STEP
from largeprompt.runs.study import Progress

if TYPE_CHECKING:
    from largeprompt.studies.softmax_vs_linear.study import SoftmaxVsLinearConfig


def missed_weight(length: float, spikes: Any) -> Any:
    """1 - E w_ε at u = √ν k*, to its last digits: (quad.12) of docs/mathematics/quadrature.md."""
    if np.ndim(spikes):
        return np.array([missed_weight(length, spike) for spike in spikes])
    nu = np.array([float(spikes)])
    sigma = np.sqrt(nu)

    def evaluate(ranges: Sequence[Range]) -> tuple[Array, Array]:
        (below, above), found = ranges[0], []
        count = math.ceil((below + above) / SCORE_STEP) + 1
        for mean in (0 * nu, nu):  # plain tokens, and the informative one
            scores = Scores(mean, sigma, np.zeros_like(mean))
            found.append(block_expectations(-below, count, scores, [(1, 0)]))
        (lost, kept, blocks), (_, planted, _) = found
        twice = falling_factorial_weight(length - 1, 1, log_survival(lost, kept))
        integrand = np.asarray(twice * planted * blocks[1, 0])  # (τ, ν)
        return SCORE_STEP * integrand.sum(0), relative_ends(integrand)

    top, highest = float(sigma[0]), float(nu[0])
    below = 44 + max(math.log(length) + min(1.5 * top**2, 10 * top), highest + 10 * top)
    above = min(5 + 10.5 * top, largest_tau(length, top, top))
    return widen(evaluate, [(below, max(above, 20 - below))])[0]


def annealed_weight(length: float, spike: float) -> float:
    """E sigmoid(ν/2 + √νξ - ln(L - 1)), a lower bound of E w_ε."""
    sigma = math.sqrt(spike)
    step = min(0.5, 0.3 / max(sigma, 1e-9))
    xi = step * np.arange(-math.ceil(9 / step), math.ceil((9 + sigma) / step) + 1)
    density = np.exp(-(xi**2) / 2) * (step / math.sqrt(2 * math.pi))
    return float(density @ (1 / (1 + np.exp(math.log(length - 1) - spike / 2 - sigma * xi))))


def location(config: SoftmaxVsLinearConfig, progress: Progress) -> xr.Dataset:
    """Shares of the answer that are read, and the spike at which softmax reads half."""
    from scipy.optimize import brentq

    spikes, lengths = np.array(config.spikes), config.location_lengths
    softmax, half = [], []
    for length in lengths:
        progress(f"one informative token, L = {length:g}")
        softmax.append(1 - missed_weight(length, spikes))
        high = 4 * math.log(length) + 20
        half.append(brentq(lambda nu, n=length: missed_weight(n, nu) - 0.5, 0.0, high))
    grid = ("location_length", "spike")
    annealed = [[annealed_weight(length, nu) for nu in config.spikes] for length in lengths]
    return xr.Dataset(
        {
            "location_annealed": (grid, annealed),
            "location_softmax": (grid, softmax),
            "location_linear": (grid, [spikes / (spikes + length) for length in lengths]),
            "location_half": ("location_length", half),
            "location_threshold": ("location_length", 2 * np.log(lengths)),
        },
        coords={"location_length": list(lengths), "spike": spikes},
    )
