"""Tasks that need more than the moments of a prompt: one informative token, marked outliers,
prompts with a mean of their own.

Drawn prompts against the exact risks of these and of in-context regression.
"""

import math

import numpy as np
import torch
import xarray as xr
from torch import Tensor
from torch.nn.functional import pad

from largeprompt.attention import LinearAttention
from largeprompt.runs.study import Progress
from largeprompt.studies.covariances import KINDS
from largeprompt.studies.softmax_vs_linear.config import SoftmaxVsLinearConfig, all_head_lengths
from largeprompt.studies.softmax_vs_linear.outliers import MarkedOutliers
from largeprompt.studies.softmax_vs_linear.parts import one_head, standard_task
from largeprompt.studies.softmax_vs_linear.planted import planted_moments
from largeprompt.studies.softmax_vs_linear.several_heads import SeveralHeads
from largeprompt.studies.softmax_vs_linear.shifted import ShiftedRegression
from largeprompt.studies.softmax_vs_linear.single_location import SingleLocationRegression
from largeprompt.training import linear_optimum

LARGEST_VARIANCE = 1e3  # of outliers without a mark


def location(config: SoftmaxVsLinearConfig, progress: Progress) -> xr.Dataset:
    """Shares of the answer that are read: predicted (annealed, and the line ν = 2 ln L), exact for
    softmax, closed for linear.
    """
    spikes, lengths = list(config.spikes), list(config.location_lengths)
    tasks = [SingleLocationRegression(2, nu) for nu in spikes]
    annealed = np.array([[task.annealed_weight(length) for task in tasks] for length in lengths])
    bounds = np.array([[task.found_bounds(length) for task in tasks] for length in lengths])
    progress("one informative token: exact shares")
    moments = [planted_moments(length, np.array(spikes), np.array(spikes)) for length in lengths]
    softmax, missed = (
        np.stack([getattr(each, name).numpy() for each in moments]) for name in ("found", "missed")
    )
    linear = np.array(
        [[1 - 2 * task.best(LinearAttention, length).risk for task in tasks] for length in lengths]
    )
    progress("one informative token: where half of it is read")
    half = [_half(length) for length in lengths]
    grid = ("location_length", "spike")
    return xr.Dataset(
        {
            "location_annealed": (grid, annealed),
            "location_bounds": ((*grid, "bound"), bounds),
            "location_softmax": (grid, softmax),
            "location_missed": (grid, missed),
            "location_linear": (grid, linear),
            "location_half": ("location_length", half),
            "location_threshold": ("location_length", [2 * math.log(length) for length in lengths]),
        },
        coords={"location_length": lengths, "spike": spikes, "bound": ["lower", "upper"]},
    )


def _half(length: float) -> float:
    """The spike at which E w_ε = 1/2."""
    from scipy.optimize import brentq

    return float(
        brentq(
            lambda nu: float(planted_moments(length, nu, nu).found) - 0.5,
            0.0,
            4 * math.log(length) + 20,
            xtol=1e-6,
        )
    )


def outliers(config: SoftmaxVsLinearConfig, length: float, progress: Progress) -> xr.Dataset:
    """The outlier variance from which on softmax wins: predicted for long prompts, then exact at
    this length, for each share.
    """
    shares, d = list(config.outlier_shares), config.outlier_dim
    tasks = [MarkedOutliers(standard_task(d, 0.0), share, 1.0) for share in shares]
    predicted = [task.crossing_variance() for task in tasks]
    marked, unmarked = [], []
    for task in tasks:
        progress(f"outliers, L = {length:g}, share {task.probability:g}")
        marked.append(task.crossing_variance(length))
        worst = MarkedOutliers(task.regression, task.probability, LARGEST_VARIANCE)
        unmarked.append(
            worst.isotropic_optimum(length, mark=0.0).risk
            / worst.isotropic_optimum(length, LinearAttention).risk
        )
    return xr.Dataset(
        {
            "outlier_predicted": ("outlier_share", predicted),
            "outlier_crossing": ("outlier_share", marked),
            "outlier_unmarked": ("outlier_share", unmarked),
        },
        coords={"outlier_share": shares},
    )


def shifts(config: SoftmaxVsLinearConfig, progress: Progress) -> xr.Dataset:
    """Crossing lengths in closed form, then the exact least risks of linear attention, one head and
    a pair.
    """
    dims, variances, lengths = (
        list(config.shift_dims),
        list(config.shift_variances),
        list(config.shift_lengths),
    )
    tasks = {(d, tau): ShiftedRegression(d, tau) for d in dims for tau in [0.0, *variances]}
    predicted = [[tasks[d, tau].crossing_length() for tau in variances] for d in dims]
    floor = [[2 * tasks[d, tau].linear_optimum() / (1 + tau) for tau in variances] for d in dims]
    excess = np.empty((3, len(dims), len(variances), len(lengths)))
    calm = np.empty((len(dims), len(lengths)))
    for k, length in enumerate(lengths):
        progress(f"prompts with their own mean, L = {length:g}")
        lattice, alone = (
            SeveralHeads.of(length, (1.0,), odd=True, largest=config.largest_scale),
            one_head(length),
        )
        for i, d in enumerate(dims):
            for j, tau in enumerate(variances):
                task = tasks[d, tau]
                # searched: the prediction knows vanishing tilts only
                pair = lattice.optimum(task.pair_task()).risk
                values = (task.linear_optimum(length), task.head_optimum(length, head=alone), pair)
                excess[:, i, j, k] = [2 * value / (1 + tau) for value in values]
            none = tasks[d, 0.0]
            calm[i, k] = none.linear_optimum(length) / (lattice.optimum(none.pair_task()).risk)
    grid = ("shift_dim", "shift_variance")
    return xr.Dataset(
        {
            "shift_crossing": (grid, predicted),
            "shift_floor": (grid, floor),
            "shift_excess": (("reader", *grid, "shift_length"), excess),
            "shift_none": (("shift_dim", "shift_length"), calm),
        },
        coords={
            "reader": ["linear", "one head", "pair"],
            "shift_dim": dims,
            "shift_variance": variances,
            "shift_length": lengths,
        },
    )


DIM, LENGTH, DIRTY_LENGTH = 2, 10, 40
SILENT = 60.0  # e^{-60}: outliers with this mark are not read


def softmax_read(tokens: Tensor, u: Tensor) -> Tensor:
    """Σ softmax(u·z) z over the prompt, (prompt, D) for tokens (prompt, L, D) and tilts u (prompt,
    D).
    """
    share = torch.softmax((tokens @ u.unsqueeze(-1)).squeeze(-1), -1)
    return (share.unsqueeze(-2) @ tokens).squeeze(-2)


def linear_read(tokens: Tensor, u: Tensor) -> Tensor:
    """(1/L) Σ (u·z) z."""
    return ((tokens @ u.unsqueeze(-1)).mT @ tokens).squeeze(-2) / tokens.shape[1]


def drawn(config: SoftmaxVsLinearConfig, progress: Progress) -> xr.Dataset:
    """Exact risks first; then the mean squared error of the same layers over drawn prompts."""
    regression, shifted = standard_task(DIM, 0.1), ShiftedRegression(DIM, 1.0, 0.1)
    place, dirty = SingleLocationRegression(3, 4.0, 0.1), MarkedOutliers(regression, 0.2, 10.0)
    lattice = SeveralHeads.of(LENGTH, (1.0, 0.25), odd=True, largest=config.largest_scale)
    straight, alone, four = (
        linear_optimum(regression, LENGTH),
        one_head(LENGTH).optimum(regression),
        lattice.optimum(regression),
    )
    pair, apart = (lattice.only([0]).optimum(task) for task in (regression, shifted.pair_task()))
    found, missed = (place.best(kind, LENGTH) for kind in KINDS.values())
    clean, rough = (dirty.isotropic_optimum(DIRTY_LENGTH, kind) for kind in KINDS.values())
    tilt = 0.8
    exact = {
        "regression, linear": straight.risk,
        "regression, one head": alone.risk,
        "regression, two heads": pair.risk,
        "regression, four heads": four.risk,
        "own mean, linear": shifted.linear_optimum(LENGTH),
        "own mean, one head": float(shifted.head_risk(tilt, LENGTH)),
        "own mean, two heads": apart.risk,
        "one token, softmax": found.risk,
        "one token, linear": missed.risk,
        "outliers, softmax": clean.risk,
        "outliers, linear": rough.risk,
    }
    progress("drawing prompts")
    stream = (
        len(all_head_lengths(config))
        + len(config.trained_spectra)
        + len(config.outlier_lengths)
        + 7
    )
    generator = torch.Generator().manual_seed(1000 * config.seed + stream)
    count = config.replicas
    squares: list[Tensor] = []

    def odd(tokens: Tensor, query: Tensor, a: float) -> Tensor:
        return (softmax_read(tokens, a * query) - softmax_read(tokens, -a * query))[:, DIM] / 2

    def compare(answer: Tensor, *answers: Tensor) -> None:
        squares.extend((each - answer[:, 0]).square() / 2 for each in answers)

    tokens, query, answer = regression.sample(count, LENGTH, generator)
    several = [
        b * odd(tokens, query, four.a * ratio)
        for b, ratio in zip(four.readouts, lattice.ratios, strict=True)
    ]
    compare(
        answer,
        linear_read(tokens, pad(query[:, :DIM] @ straight.matrix.mT, (0, 1)))[:, DIM],
        alone.readouts[0] * softmax_read(tokens, alone.a * query)[:, DIM],
        pair.readouts[0] * odd(tokens, query, pair.a),
        torch.stack(several).sum(0),
    )
    tokens, query, answer = shifted.sample(count, LENGTH, generator)
    compare(
        answer,
        shifted.linear_gain(LENGTH) * linear_read(tokens, query)[:, DIM],
        shifted.head_gain(tilt, LENGTH) * softmax_read(tokens, tilt * query)[:, DIM],
        apart.readouts[0] * odd(tokens, query, apart.a),
    )
    tokens, query, answer = place.sample(count, LENGTH, generator)
    compare(
        answer,
        found.read_out * softmax_read(tokens, found.tilt * query)[:, 1],
        missed.read_out * linear_read(tokens, missed.tilt * query)[:, 1],
    )
    tokens, query, answer = dirty.sample(count, DIRTY_LENGTH, generator)
    quiet = torch.cat([clean.a * query[:, : DIM + 1], -SILENT * query[:, DIM + 1 :]], -1)
    compare(
        answer,
        clean.read_out * softmax_read(tokens, quiet)[:, DIM],
        rough.read_out * linear_read(tokens, pad(rough.a * query[:, :DIM], (0, 2)))[:, DIM],
    )
    return xr.Dataset(
        {
            "drawn_exact": ("case", list(exact.values())),
            "drawn_mean": ("case", [float(each.mean()) for each in squares]),
            "drawn_error": ("case", [float(each.std()) / math.sqrt(count) for each in squares]),
        },
        coords={"case": list(exact)},
    )
