"""Drawn prompts against the exact risks of every task and every kind of attention in the contest."""

from __future__ import annotations

import math

import torch
import xarray as xr
from torch import Tensor

from largeprompt.runs.study import Progress
from largeprompt.studies.softmax_vs_linear.config import SoftmaxVsLinearConfig, one_head, standard_task
from largeprompt.training import (
    HeadLattice,
    MarkedOutliers,
    ShiftedRegression,
    SingleLocationRegression,
    isotropic_outliers,
    linear_optimum,
)

DIM, LENGTH, DIRTY_LENGTH = 2, 10, 40
SILENT = 60.0  # e^{-60}: outliers with this mark are not read


def softmax_read(tokens: Tensor, u: Tensor) -> Tensor:
    """Σ softmax(u·z) z over the prompt, (prompt, D) for tokens (prompt, L, D) and tilts u (prompt, D)."""
    share = torch.softmax((tokens @ u.unsqueeze(-1)).squeeze(-1), -1)
    return (share.unsqueeze(-2) @ tokens).squeeze(-2)


def linear_read(tokens: Tensor, u: Tensor) -> Tensor:
    """(1/L) Σ (u·z) z."""
    return ((tokens @ u.unsqueeze(-1)).mT @ tokens).squeeze(-2) / tokens.shape[1]


def drawn(config: SoftmaxVsLinearConfig, index: int, progress: Progress) -> xr.Dataset:
    """Exact risks first; then the mean squared error of the same layers over drawn prompts."""
    regression, shifted = standard_task(DIM, 0.1), ShiftedRegression(DIM, 1.0, 0.1)
    place, dirty = SingleLocationRegression(3, 4.0, 0.1), MarkedOutliers(standard_task(DIM, 0.1), 0.2, 10.0)
    alone, lattice = (
        one_head(LENGTH).optimum(regression),
        HeadLattice.of(LENGTH, (1.0, 0.25), odd=True, largest=config.largest_scale),
    )
    pair, four, apart = (
        lattice.only([0]).optimum(regression),
        lattice.optimum(regression),
        lattice.only([0]).optimum(shifted.pair_task()),
    )
    matrix = linear_optimum(regression, LENGTH).matrix
    found, clean, rough = (
        place.best("softmax", LENGTH),
        isotropic_outliers(dirty, DIRTY_LENGTH),
        isotropic_outliers(dirty, DIRTY_LENGTH, softmax=False),
    )
    tilt = 0.8
    exact = {
        "regression, linear": linear_optimum(regression, LENGTH).risk,
        "regression, one head": alone.risk,
        "regression, two heads": pair.risk,
        "regression, four heads": four.risk,
        "own mean, linear": shifted.linear_optimum(LENGTH),
        "own mean, one head": float(shifted.head_risk(tilt, LENGTH)),
        "own mean, two heads": apart.risk,
        "one token, softmax": found.risk,
        "one token, linear": place.best("linear", LENGTH).risk,
        "outliers, softmax": clean.risk,
        "outliers, linear": rough.risk,
    }
    progress("drawing prompts")
    generator = torch.Generator().manual_seed(1000 * config.seed + index)
    count = config.replicas
    means, errors = [], []

    def odd(tokens: Tensor, query: Tensor, a: float) -> Tensor:
        return (softmax_read(tokens, a * query) - softmax_read(tokens, -a * query))[:, DIM] / 2

    answers: dict[str, tuple[Tensor, Tensor]] = {}
    tokens, query, answer = regression.sample(count, LENGTH, generator)
    u = torch.nn.functional.pad(query[:, :DIM] @ matrix.mT, (0, 1))
    reads: dict[str, Tensor] = {
        "linear": linear_read(tokens, u)[:, DIM],
        "one head": alone.readouts[0] * softmax_read(tokens, alone.a * query)[:, DIM],
        "two heads": pair.readouts[0] * odd(tokens, query, pair.a),
        "four heads": torch.stack(
            [b * odd(tokens, query, four.a * ratio) for b, ratio in zip(four.readouts, lattice.ratios, strict=True)]
        ).sum(0),
    }
    answers |= {f"regression, {name}": (read, answer[:, 0]) for name, read in reads.items()}
    tokens, query, answer = shifted.sample(count, LENGTH, generator)
    linear_gain, head_gain = shifted.linear_gain(LENGTH), shifted.head_gain(tilt, LENGTH)
    reads = {
        "linear": linear_gain * linear_read(tokens, query)[:, DIM],
        "one head": head_gain * softmax_read(tokens, tilt * query)[:, DIM],
        "two heads": apart.readouts[0] * odd(tokens, query, apart.a),
    }
    answers |= {f"own mean, {name}": (read, answer[:, 0]) for name, read in reads.items()}
    tokens, query, answer = place.sample(count, LENGTH, generator)
    straight = place.best("linear", LENGTH)
    answers["one token, softmax"] = found.read_out * softmax_read(tokens, found.tilt * query)[:, 1], answer[:, 0]
    answers["one token, linear"] = straight.read_out * linear_read(tokens, straight.tilt * query)[:, 1], answer[:, 0]
    tokens, query, answer = dirty.sample(count, DIRTY_LENGTH, generator)
    quiet = torch.cat([clean.a * query[:, : DIM + 1], -SILENT * query[:, DIM + 1 :]], -1)
    answers["outliers, softmax"] = clean.read_out * softmax_read(tokens, quiet)[:, DIM], answer[:, 0]
    plain = torch.nn.functional.pad(rough.a * query[:, :DIM], (0, 2))
    answers["outliers, linear"] = rough.read_out * linear_read(tokens, plain)[:, DIM], answer[:, 0]
    for name in exact:
        squared = (answers[name][0] - answers[name][1]).square() / 2
        means.append(float(squared.mean()))
        errors.append(float(squared.std()) / math.sqrt(count))
    return xr.Dataset(
        {
            "drawn_exact": ("case", list(exact.values())),
            "drawn_mean": ("case", means),
            "drawn_error": ("case", errors),
        },
        coords={"case": list(exact)},
    )
