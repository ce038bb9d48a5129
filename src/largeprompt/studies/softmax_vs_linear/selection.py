"""Tasks that need more than the moments of a prompt: one informative token, marked outliers, prompts with a mean of their own."""

from __future__ import annotations

import math

import numpy as np
import xarray as xr

from largeprompt.law import planted_moments
from largeprompt.runs.study import Progress
from largeprompt.studies.softmax_vs_linear.config import SoftmaxVsLinearConfig, one_head, standard_task
from largeprompt.training import (
    HeadLattice,
    MarkedOutliers,
    ShiftedRegression,
    SingleLocationRegression,
    crossing_variance,
    isotropic_outliers,
)

LARGEST_VARIANCE = 1e3  # of outliers without a mark


def location(config: SoftmaxVsLinearConfig, progress: Progress) -> xr.Dataset:
    """Shares of the answer that are read: predicted (annealed, and the line ν = 2 ln L), exact for softmax, closed for linear."""
    spikes, lengths = list(config.spikes), list(config.location_lengths)
    annealed = np.array([[SingleLocationRegression(2, nu).annealed_weight(length) for nu in spikes] for length in lengths])
    bounds = np.array([[SingleLocationRegression(2, nu).found_bounds(length) for nu in spikes] for length in lengths])
    progress("one informative token: exact shares")
    softmax = np.stack([planted_moments(length, np.array(spikes), np.array(spikes)).found.numpy() for length in lengths])
    missed = np.stack([planted_moments(length, np.array(spikes), np.array(spikes)).missed.numpy() for length in lengths])
    linear = np.array(
        [[1 - 2 * SingleLocationRegression(2, nu).best("linear", length).risk for nu in spikes] for length in lengths]
    )
    searched = SingleLocationRegression(2, spikes[len(spikes) // 2])
    gap = abs(searched.search(lengths[0]).risk / searched.best("softmax", lengths[0]).risk - 1)
    half = []
    for length in lengths:
        progress(f"one informative token: where half of it is read, L = {length:g}")
        half.append(_half(length))
    grid = ("location_length", "spike")
    return xr.Dataset(
        {
            "location_annealed": (grid, annealed, {"long_name": "predicted share, also a proved lower bound"}),
            "location_bounds": ((*grid, "bound"), bounds),
            "location_softmax": (grid, softmax, {"long_name": "share of the answer's variance that softmax reads"}),
            "location_missed": (grid, missed),
            "location_linear": (grid, linear),
            "location_half": ("location_length", half, {"long_name": "spike at which softmax reads half"}),
            "location_threshold": ("location_length", [2 * math.log(length) for length in lengths], {"long_name": "2 ln L"}),
            "location_search": ((), gap),
        },
        coords={"location_length": lengths, "spike": spikes, "bound": ["lower", "upper"]},
    )


def _half(length: float) -> float:
    """The spike at which E w_ε = 1/2."""
    from scipy.optimize import brentq

    return float(brentq(lambda nu: float(planted_moments(length, nu, nu).found) - 0.5, 0.0, 4 * math.log(length) + 20, xtol=1e-6))


def outliers(config: SoftmaxVsLinearConfig, length: float, progress: Progress) -> xr.Dataset:
    """The outlier variance from which on softmax wins: predicted for long prompts, then exact at this length, for each share."""
    shares, d = list(config.outlier_shares), config.outlier_dim
    tasks = [MarkedOutliers(standard_task(d, 0.0), share, 1.0) for share in shares]
    predicted = [crossing_variance(task) for task in tasks]
    marked, unmarked = [], []
    for task in tasks:
        progress(f"outliers, L = {length:g}, share {task.probability:g}")
        marked.append(crossing_variance(task, length))
        worst = MarkedOutliers(task.regression, task.probability, LARGEST_VARIANCE)
        blind = isotropic_outliers(worst, length, mark=0.0).risk / isotropic_outliers(worst, length, softmax=False).risk
        unmarked.append(blind)
    return xr.Dataset(
        {
            "outlier_predicted": ("outlier_share", predicted, {"long_name": "crossing variance, first order in 1/L"}),
            "outlier_crossing": ("outlier_share", marked, {"long_name": "crossing variance, exact"}),
            "outlier_unmarked": ("outlier_share", unmarked, {"long_name": "risk of softmax over linear without a mark"}),
        },
        coords={"outlier_share": shares},
    )


def shifts(config: SoftmaxVsLinearConfig, progress: Progress) -> xr.Dataset:
    """Crossing lengths in closed form, then the exact least risks of linear attention, one head and a pair."""
    dims, variances, lengths = list(config.shift_dims), list(config.shift_variances), list(config.shift_lengths)
    tasks = {(d, tau): ShiftedRegression(d, tau) for d in dims for tau in [0.0, *variances]}
    predicted = [[tasks[d, tau].crossing_length() for tau in variances] for d in dims]
    floor = [[2 * tasks[d, tau].linear_optimum() / (1 + tau) for tau in variances] for d in dims]
    excess = np.empty((3, len(dims), len(variances), len(lengths)))
    calm = np.empty((len(dims), len(lengths)))
    for k, length in enumerate(lengths):
        progress(f"prompts with their own mean, L = {length:g}")
        lattice, alone = HeadLattice.of(length, (1.0,), odd=True, largest=config.largest_scale), one_head(length)
        for i, d in enumerate(dims):
            for j, tau in enumerate(variances):
                task = tasks[d, tau]
                pair = lattice.optimum(task.pair_task()).risk  # searched: the prediction knows vanishing tilts only
                values = (task.linear_optimum(length), task.head_optimum(length, lattice=alone), pair)
                excess[:, i, j, k] = [2 * value / (1 + tau) for value in values]
            none = tasks[d, 0.0]
            calm[i, k] = none.linear_optimum(length) / (lattice.optimum(none.pair_task()).risk)
    grid = ("shift_dim", "shift_variance")
    return xr.Dataset(
        {
            "shift_crossing": (grid, predicted, {"long_name": "length from which on a pair beats linear attention, closed form"}),
            "shift_floor": (grid, floor, {"long_name": "relative excess that linear attention keeps for ever"}),
            "shift_excess": (("reader", *grid, "shift_length"), excess),
            "shift_none": (("shift_dim", "shift_length"), calm, {"long_name": "risk of linear over pair without a shift"}),
        },
        coords={"reader": ["linear", "one head", "pair"], "shift_dim": dims, "shift_variance": variances, "shift_length": lengths},
    )
