"""Q1: where does softmax attention beat linear attention, by how much, and for which tasks?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import xarray as xr

from largeprompt.attention import SoftmaxAttention
from largeprompt.runs.study import Progress, Study, merged
from largeprompt.studies.covariances import KINDS, F, block_start, largest_alpha
from largeprompt.studies.softmax_vs_linear.config import (
    SoftmaxVsLinearConfig,
    check_config,
    one_head,
    relative_excess,
    standard_task,
)
from largeprompt.studies.softmax_vs_linear.drawn import drawn
from largeprompt.studies.softmax_vs_linear.heads import free_heads, pairs, skewed_pairs
from largeprompt.studies.softmax_vs_linear.rules import verdicts
from largeprompt.studies.softmax_vs_linear.selection import location, outliers, shifts
from largeprompt.training import block_optimum, gradient_flow, linear_optimum, long_prompt_constants


def cells(config: SoftmaxVsLinearConfig) -> list[str]:
    """Long ones first."""
    check_config(config)
    several = sorted({*config.pair_lengths, *config.head_lengths}, key=lambda length: (length not in config.head_lengths, length))
    return [
        *(f"heads {length:g}" for length in several),
        *(f"trained {spectrum}" for spectrum in config.trained_spectra),
        "starts",
        "free",
        "spectra",
        "one",
        *(f"outliers {length:g}" for length in config.outlier_lengths),
        "shifts",
        "skewed",
        "location",
        "drawn",
    ]


def compute(config: SoftmaxVsLinearConfig, cell: str, progress: Progress) -> xr.Dataset:
    """One part of the map; predictions before anything else."""
    what, _, rest = cell.partition(" ")
    index = cells(config).index(cell)
    if what == "heads":
        return pairs(config, float(rest), progress)
    if what == "outliers":
        return outliers(config, float(rest), progress)
    if what == "trained":
        return _trained(config, rest, progress)
    if what in ("free", "drawn"):
        return {"free": free_heads, "drawn": drawn}[what](config, index, progress)
    plain = {
        "one": _one_head,
        "spectra": _spectra,
        "starts": _starts,
        "shifts": shifts,
        "skewed": skewed_pairs,
        "location": location,
    }
    return plain[what](config, progress)


def _one_head(config: SoftmaxVsLinearConfig, progress: Progress) -> xr.Dataset:
    """Best one-head softmax and best linear attention over (L, d, noise) for identity covariances."""
    tasks = {(d, s2): standard_task(d, s2) for d in config.dims for s2 in config.noises}
    limits = np.reshape([long_prompt_constants(task).ratio for task in tasks.values()], (len(config.dims), len(config.noises)))
    c = np.array([[[((1 + s2) * d + 1) / length for s2 in config.noises] for d in config.dims] for length in config.lengths])
    softmax, linear, tilt = np.empty((3, *c.shape))
    for k, length in enumerate(config.lengths):
        progress(f"one head, L = {length:g}")
        lattice = one_head(length)
        for i, d in enumerate(config.dims):
            for j, s2 in enumerate(config.noises):
                task, best = tasks[d, s2], lattice.optimum(tasks[d, s2])
                softmax[k, i, j], tilt[k, i, j] = relative_excess(task, best.risk), best.a
                linear[k, i, j] = relative_excess(task, linear_optimum(task, length).risk)
    grid = ("length", "dim", "noise")
    return xr.Dataset(
        {
            "limit_ratio": (("dim", "noise"), limits, {"long_name": "softmax over linear for long prompts, predicted"}),
            "noise_limit": (
                "dim",
                [(1 + 2 / d) ** (1 + d / 2) for d in config.dims],
                {"long_name": "the same where noise dominates"},
            ),
            "linear_predicted": (grid, c / (1 + c), {"long_name": "c/(1 + c)"}),
            "softmax_best": (grid, softmax, {"long_name": "relative excess risk of the best softmax head"}),
            "linear_best": (grid, linear, {"long_name": "relative excess risk of the best linear attention"}),
            "softmax_tilt": (grid, tilt),
        },
        coords={"length": list(config.lengths), "dim": list(config.dims), "noise": list(config.noises)},
    )


def _spectra(config: SoftmaxVsLinearConfig, progress: Progress) -> xr.Dataset:
    """Other covariances of inputs and of queries: all d × d matrices A are searched."""
    d, lengths = config.spectrum_dim, list(config.spectrum_lengths)
    tasks = [[standard_task(d, s2, name) for s2 in config.spectrum_noises] for name in config.spectra]
    predicted = [[long_prompt_constants(task).ratio for task in row] for row in tasks]
    softmax, linear = np.empty((2, len(config.spectra), len(config.spectrum_noises), len(lengths)))
    for i, row in enumerate(tasks):
        for j, task in enumerate(row):
            for k, length in enumerate(lengths):
                progress(f"{config.spectra[i]}: L = {length:g}")
                best = block_optimum(task, length, directions=config.directions, seed=config.seed)
                softmax[i, j, k] = relative_excess(task, best.risk)
                linear[i, j, k] = relative_excess(task, linear_optimum(task, length).risk)
    again = [
        [
            relative_excess(task, block_optimum(task, lengths[-1], directions=config.directions, seed=config.seed + 1).risk)
            for task in row
        ]
        for row in tasks
    ]
    grid = ("spectrum", "spectrum_noise", "spectrum_length")
    return xr.Dataset(
        {
            "spectrum_quadrature": (grid[:2], abs(np.array(again) / softmax[..., -1] - 1), {"long_name": "other Sobol directions"}),
            "spectrum_limit": (grid[:2], predicted),
            "spectrum_softmax": (grid, softmax),
            "spectrum_linear": (grid, linear),
        },
        coords={"spectrum": list(config.spectra), "spectrum_noise": list(config.spectrum_noises), "spectrum_length": lengths},
    )


def _trained(config: SoftmaxVsLinearConfig, spectrum: str, progress: Progress) -> xr.Dataset:
    """Where the flow from the theorem's start ends, against the least risk over all block parameters."""
    task = standard_task(config.trained_dim, config.trained_noise, spectrum)
    alpha = 0.9 * largest_alpha(task.covariance)
    columns: dict[str, list[float]] = {f"{kind}_{name}": [] for kind in KINDS for name in ("trained", "found")}
    for kind, attention in KINDS.items():
        for length in config.trained_lengths:
            progress(f"training {kind} attention, {spectrum}, L = {length:g}")
            flow = gradient_flow(
                task,
                attention(*block_start(config.trained_dim, alpha, alpha)),
                length,
                config.until,
                parametrisation="block",
                times=[config.until],
                gradient_tolerance=1e-7,
                tolerance=1e-6,
                points=config.points,
                seed=config.seed,
            ).completed()
            end = flow.parametrisation.layer(flow.parameters[-1:])
            A, b = end[0][0, : task.dim, : task.dim], end[1][0, 0, -1:]
            columns[f"{kind}_trained"].append(relative_excess(task, _accurate(config, task, A, b, length, kind == "softmax")))
            best = block_optimum(task, length, softmax=kind == "softmax", directions=config.directions, seed=config.seed)
            columns[f"{kind}_found"].append(relative_excess(task, best.risk))
    return xr.Dataset(
        {name: (("trained_spectrum", "trained_length"), [values]) for name, values in columns.items()},
        coords={"trained_spectrum": [spectrum], "trained_length": list(config.trained_lengths)},
    )


def _accurate(config: SoftmaxVsLinearConfig, task: Any, A: torch.Tensor, b: torch.Tensor, length: float, softmax: bool) -> float:
    """Risk at given parameters over the same queries as the search, so that the two can be compared to many digits."""
    from largeprompt.training.optima.layer import radial_risk

    return float(radial_risk(task, A, b, length, softmax, directions=config.directions, seed=config.seed))


def _starts(config: SoftmaxVsLinearConfig, progress: Progress) -> xr.Dataset:
    """Flows of all entries of U and V from random starts: does any end below the block optimum, or below linear attention?"""
    d = 2
    task = standard_task(d, config.trained_noise)
    risks = np.empty((len(config.start_lengths), config.starts))
    block, linear = [], []
    for i, length in enumerate(config.start_lengths):
        block.append(relative_excess(task, one_head(length).optimum(task).risk))
        linear.append(relative_excess(task, linear_optimum(task, length).risk))
        for j in range(config.starts):
            progress(f"start {j + 1}, L = {length:g}")
            generator = torch.Generator().manual_seed(1000 * config.seed + j)
            U, V = (torch.randn(n, d + 1, generator=generator, dtype=F) / 2 for n in (d + 1, 1))
            flow = gradient_flow(
                task,
                SoftmaxAttention(U, V),
                length,
                config.start_until,
                times=[config.start_until],
                gradient_tolerance=1e-5,
                tolerance=1e-6,
                points=config.start_points,
                seed=config.seed,
            ).completed()
            end = flow.at(float(flow.times[-1]))
            risks[i, j] = relative_excess(task, float(task.risk(end, length, points=16_384, seed=config.seed + 1)))
    return xr.Dataset(
        {
            "start_excess": (("start_length", "start"), risks),
            "start_block": ("start_length", block),
            "start_linear": ("start_length", linear),
        },
        coords={"start_length": list(config.start_lengths), "start": range(config.starts)},
    )


def combine(config: SoftmaxVsLinearConfig, parts: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Heads and outliers stacked by length, flows by spectrum, the rest side by side."""
    stacked = {}
    for what, dimension in (("heads", "head_length"), ("outliers", "outlier_length"), ("trained", "")):
        chosen = {name.partition(" ")[2]: part for name, part in parts.items() if name.startswith(what + " ")}
        if dimension:
            order = sorted(chosen, key=float)
            values = xr.Variable(dimension, [float(name) for name in order])
            stacked[what] = xr.concat([chosen[name] for name in order], values, combine_attrs="drop", join="outer")
        else:
            stacked[what] = xr.concat(list(chosen.values()), "trained_spectrum", combine_attrs="drop", join="outer")
    rest = {name: part for name, part in parts.items() if " " not in name}
    data = merged(config, stacked | rest)
    sets = math.prod(data.softmax_best.shape) + math.prod(data.spectrum_softmax.shape)
    return data.assign(parameter_sets=sets)


STUDY = Study(
    "softmax_vs_linear",
    "Softmax against linear attention",
    "Where does softmax attention beat linear attention, by how much, and for which tasks?",
    "Least risks over the parameters, exact at every length: one softmax head, pairs of heads with opposite tilts by a "
    "two-dimensional rule, and linear attention, over length, dimension, noise and spectrum, with the long-prompt ratio in closed "
    "form; trained risks beside them. Then three tasks where the prompt has to be centred, searched or cleaned, with "
    "the predicted lines "
    "on which the answer turns round. Drawn prompts check the exact risks.",
    SoftmaxVsLinearConfig,
    SoftmaxVsLinearConfig(
        dims=(1, 5),
        noises=(0.0, 1.0),
        lengths=(20, 100, 1_000_000_000),
        spectra=("toeplitz",),
        spectrum_dim=3,
        spectrum_lengths=(100, 1_000_000_000),
        spectrum_noises=(0.0,),
        directions=128,
        trained_spectra=("identity",),
        trained_dim=2,
        trained_lengths=(100,),
        points=128,
        starts=1,
        start_lengths=(30,),
        start_points=128,
        start_until=20.0,
        largest_scale=4.0,
        head_dims=(1, 2),
        head_noises=(0.0,),
        pair_lengths=(5, 1_000_000_000),
        head_lengths=(),
        skew_ratios=(-1.0,),
        free_heads=(2,),
        free_prompts=512,
        shift_variances=(0.1, 1.0),
        shift_dims=(1,),
        shift_lengths=(30,),
        spikes=(0.0, 4.0, 16.0),
        location_lengths=(100, 1_000_000),
        outlier_shares=(0.2,),
        outlier_lengths=(1000,),
        outlier_dim=2,
        replicas=2000,
    ),
    cells,
    compute,
    combine,
    verdicts,
)
