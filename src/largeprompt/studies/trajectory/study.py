"""E2, C5, C7: does the flow at length L stay in a tube around the infinite-prompt flow, and how fast does its risk follow?"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import xarray as xr

from largeprompt.runs.study import Progress, Study, Verdict, log_slope, merged
from largeprompt.studies.covariances import KINDS, F, block_start, covariance, largest_alpha
from largeprompt.studies.exponent.study import sharp_exponent
from largeprompt.training import LinearRegression, gradient_flow, isotropic_optimum
from largeprompt.training.gaps import tube


@dataclasses.dataclass(frozen=True)
class TrajectoryConfig:
    """Noiseless regression from the theorem's balanced start; the excess risk is traced for identity covariance."""

    dim: int = 5
    covariance: str = "toeplitz"
    lengths: tuple[float, ...] = (30, 100, 1000, 10_000, 100_000, 1_000_000)
    until: float = 20.0
    times: int = 61
    points: int = 1024
    excess_dims: tuple[int, ...] = (1, 2, 3, 5, 10)
    excess_decades: tuple[int, int] = (1, 9)
    targets: tuple[float, ...] = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
    seed: int = 0


def cells(config: TrajectoryConfig) -> list[str]:
    """Two tubes, and the excess risk of both attentions in every dimension."""
    return ["tube softmax", "tube linear", *(f"excess d = {d}" for d in config.excess_dims)]


def compute(config: TrajectoryConfig, cell: str, progress: Progress) -> xr.Dataset:
    """One tube, or the excess risks of one dimension."""
    what, rest = cell.split(" ", 1)
    return _tube(config, rest, progress) if what == "tube" else _excess(config, int(rest.split()[-1]), progress)


def _tube(config: TrajectoryConfig, kind: str, progress: Progress) -> xr.Dataset:
    d, sigma = config.dim, covariance(config.covariance, config.dim)
    alpha = 0.9 * largest_alpha(sigma)
    task = LinearRegression(sigma, torch.eye(d, dtype=F), 0.0)
    options: dict[str, Any] = {
        "parametrisation": "block",
        "times": np.append(0.0, np.geomspace(config.until / 1000, config.until, config.times)),
        "points": config.points,
        "seed": config.seed,
    }
    found = tube(
        task,
        KINDS[kind](*block_start(d, alpha, alpha)),
        list(config.lengths),
        config.until,
        **options,
        progress=lambda time: progress(f"tube, {kind} attention: time {time:.3g}"),
    )
    data = found.dataset[["distance", "envelope", "risk", "limit_risk"]]
    astray = gradient_flow(  # the control: the longest prompt from another start
        task, KINDS[kind](*block_start(d, alpha, 3 * alpha)), config.lengths[-1], config.until, **options
    ).completed()
    data["astray"] = ("time", (astray.parameters - found.limit.parameters[0]).norm(dim=-1).numpy())
    names = found.flow.parametrisation.names()
    data["theta"] = (("length", "time", "parameter"), found.flow.parameters.numpy())
    data["limit_theta"] = (("time", "parameter"), found.limit.parameters[0].numpy())
    return data.assign_coords(parameter=names).rename({name: f"{kind}_{name}" for name in data.data_vars})


def _excess(config: TrajectoryConfig, d: int, progress: Progress) -> xr.Dataset:
    """Excess risk (the Bayes risk is 0 here) at the infinite-prompt endpoint and at the optimum of each length, W = I/d."""
    task = LinearRegression(torch.eye(d, dtype=F), torch.eye(d, dtype=F) / d, 0.0)
    low, high = config.excess_decades
    lengths = np.logspace(low, high, 2 * (high - low) + 1).round()
    b_end = d**0.25
    columns: dict[str, list[float]] = {name: [] for name in ("softmax_at_limit_endpoint", "softmax_best", "linear_best")}
    starts = dict.fromkeys(KINDS, (1 / b_end, b_end))
    for length in lengths[::-1]:  # from the longest prompt, so that each optimum starts the search of the next
        progress(f"excess risk, d = {d}: L = {length:.3g}")
        at = task.isotropic_risk(torch.tensor([1 / b_end], dtype=F), torch.tensor([b_end], dtype=F), float(length))
        columns["softmax_at_limit_endpoint"].append(float(at[0]))
        for kind in KINDS:
            best = isotropic_optimum(task, float(length), softmax=kind == "softmax", start=starts[kind])
            starts[kind] = best.a, best.b
            columns[f"{kind}_best"].append(best.risk)
    c = (d + 1) / lengths
    data = {name: (("dim", "excess_length"), [values[::-1]]) for name, values in columns.items()}
    data["linear_predicted"] = (("dim", "excess_length"), [(c / (1 + c) / 2).tolist()])
    return xr.Dataset(data, coords={"dim": [d], "excess_length": lengths})


def combine(config: TrajectoryConfig, parts: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Tubes side by side, excess risks stacked by dimension, and the measured L(eps)."""
    excess = xr.concat([parts[f"excess d = {d}"] for d in config.excess_dims], "dim", combine_attrs="drop", join="outer")
    data = merged(config, {"softmax": parts["tube softmax"], "linear": parts["tube linear"], "excess": excess})
    targets = np.asarray(config.targets)
    for name in ("softmax_best", "linear_best"):
        needed = [_crossing(excess.excess_length.values, excess[name].sel(dim=d).values, targets) for d in config.excess_dims]
        data[f"needed_length_{name.split('_')[0]}"] = (
            ("dim", "epsilon"),
            needed,
            {"long_name": "L(eps): from here on excess <= eps"},
        )
    return data.assign_coords(epsilon=targets)


def _crossing(lengths: np.ndarray, excess: np.ndarray, targets: np.ndarray) -> list[float]:
    """Length from which on the excess is at most each target, log-log interpolated; the first if always, NaN if never."""
    x, y = np.log(lengths), np.log(excess)
    found = []
    for target in np.log(targets):
        above = np.flatnonzero(y > target)
        i = int(above[-1]) if len(above) else -1
        if i == len(x) - 1:
            found.append(np.nan)
        else:
            found.append(float(lengths[0]) if i < 0 else float(np.exp(np.interp(-target, -y[i : i + 2], x[i : i + 2]))))
    return found


def exponents(data: xr.Dataset, name: str, decades: float = 2.0) -> xr.DataArray:
    """Minus the log-log slope of an excess risk over the last decades, for each dimension."""
    far = data.where(data.excess_length >= float(data.excess_length.max()) / 10**decades, drop=True)
    return xr.DataArray([-log_slope(far.excess_length, far[name].sel(dim=d)) for d in data.dim], coords={"dim": data.dim})


def verdicts(data: xr.Dataset) -> list[Verdict]:
    """C5: sup ‖δ‖ falls with L like a power, the envelope is not crossed, L(eps) is there for every eps asked; C7 beside linear."""
    found = []
    for kind in KINDS:
        distance, envelope = data[f"{kind}_distance"], data[f"{kind}_envelope"]
        sup = distance.max("time")
        inside = bool((distance <= envelope * (1 + 1e-9) + 1e-9).all())
        slope = -log_slope(sup.length[-3:], sup[-3:])
        falls = bool((sup.diff("length") < 0).all()) and slope > 0.2
        ratio = float((envelope.isel(time=-1) / distance.isel(time=-1)).isel(length=-1))
        found.append(
            Verdict(
                "C5" if kind == "softmax" else "C7",
                f"Does the flow of {kind} attention stay in a tube around the infinite-prompt flow that closes as L grows?",
                "holds" if inside and falls else "fails",
                f"sup ‖θ_L - θ_∞‖ falls from {float(sup[0]):.2g} (L = {float(sup.length[0]):g}) to {float(sup[-1]):.2g} "
                f"(L = {float(sup.length[-1]):.0e}), like L^-{slope:.2f} at the end; the Grönwall envelope is "
                f"{'never crossed' if inside else 'crossed'} and {ratio:.1f} times as large at the last time.",
            )
        )
    apart, near = float(data.softmax_astray[-1]), float(data.softmax_distance.max("time")[-1])
    found.append(
        Verdict(
            "C5",
            "Does the longest prompt, started from a b(0) three times as large, end in the same tube?",
            "fails" if apart > 3 * near else "holds",
            f"At the last time it is {apart:.2g} away from the infinite-prompt flow, against {near:.2g} from the same start.",
            control=True,
        )
    )
    eps = float(data.epsilon[min(1, data.sizes["epsilon"] - 1)])
    needed = data.needed_length_softmax.sel(epsilon=eps)
    pairs = ", ".join(f"{float(needed.sel(dim=d)):.3g} (d = {int(d)})" for d in data.dim.values)
    known = bool(np.isfinite(data.needed_length_softmax).all())
    found.append(
        Verdict(
            "C5",
            "Is there an L(eps) from which on the best risk over A = aI, b is within eps of the infinite prompt's?",
            "holds" if known else "undecided",
            f"L({eps:g}) = {pairs} for identity covariance and W = I/d"
            + (f"; found for every eps down to {float(data.epsilon.min()):g}." if known else "; not found for every eps asked."),
        )
    )
    best, limit = exponents(data, "softmax_best"), exponents(data, "softmax_at_limit_endpoint")
    pairs = ", ".join(f"{float(limit.sel(dim=d)):.2f} ({sharp_exponent(d**-0.5):.2f}) at d = {int(d)}" for d in data.dim.values)
    found.append(
        Verdict(
            "C5",
            "Does the excess risk fall like 1/L?",
            "holds in part" if float(best.min()) > 0.98 else "fails",
            f"At the optimum of each length the exponent is {float(best.min()):.2f} to {float(best.max()):.2f}. At the "
            f"infinite-prompt endpoint, over the last two decades (and as L → ∞, predicted by g(H), H² = tr(Σ⁻²)^-½): {pairs}; "
            "slower than 1/L for ever where tr Σ⁻² < 4.",
        )
    )
    ratio = (data.softmax_best / data.linear_best).isel(excess_length=-1)
    both = min(float(best.min()), float(exponents(data, "linear_best").min())) > 0.9
    formula = float(abs(data.linear_best / data.linear_predicted - 1).max())
    found.append(
        Verdict(
            "C7",
            "Does trained softmax attention reach the risk of trained linear attention as L grows?",
            ("holds" if float(abs(ratio - 1).max()) < 0.05 else "holds in part") if both else "fails",
            ("Both tend to the Bayes risk" if both else "They do not both tend to the Bayes risk")
            + "; the excess of softmax is larger by a factor "
            + ", ".join(f"{float(ratio.sel(dim=d)):.2f} (d = {int(d)})" for d in data.dim.values)
            + f" at L = {float(data.excess_length[-1]):.0e}. (Linear attention against its closed form: {formula:.0e}.)",
        )
    )
    return found


STUDY = Study(
    "trajectory",
    "Training on long prompts against the infinite prompt",
    "Does gradient flow at length L follow the infinite-prompt flow, and from which L on is its risk within eps?",
    "Flows on the exact risk of every length and of the infinite prompt run side by side from the theorem's balanced start. "
    "Their distance is compared with a Grönwall envelope made of the gradients and Hessians met on the way. "
    "Excess risks are minimised exactly for identity covariance, up to L = 10⁹, and inverted for L(eps).",
    TrajectoryConfig,
    TrajectoryConfig(
        dim=3,
        lengths=(30, 1000, 100_000),
        times=31,
        points=256,
        excess_dims=(3,),
        excess_decades=(1, 5),
        targets=(1e-1, 1e-2, 1e-3),
    ),
    cells,
    compute,
    combine,
    verdicts,
)
