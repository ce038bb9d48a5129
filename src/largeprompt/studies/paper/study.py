"""P1, the authors' own experiment: K, Q, V and a read-out trained apart, softmax against linear attention, nineteen lengths."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray

from largeprompt.runs.study import Outcome, Progress, Study, Verdict
from largeprompt.studies.covariances import KINDS, F, covariance
from largeprompt.training import Factorised, LinearRegression, gradient_flow, stochastic_gradient_descent

SETTINGS = ("intended", "released")
TRAINED = 300.0  # the authors' 300,000 steps of 1e-3


@dataclasses.dataclass(frozen=True)
class PaperConfig:
    """The authors' numbers: d = 5, noise 0.1, w ~ N(0, I/d), Σ_ij = 0.5^|i-j|, learning rate 1e-3, batch 128, 300,000 steps.

    SGD is run at few lengths and stopped early, since each of its runs takes longer than all flows together; ``sgd_steps=300_000``
    follows it to the end.
    """

    dim: int = 5
    noise_variance: float = 0.1
    lengths: tuple[int, ...] = (*range(10, 101, 10), *range(200, 1001, 100))
    until: float = TRAINED
    times: int = 61
    points: int = 4096
    tolerance: float = 1e-5
    seed: int = 0
    sgd_lengths: tuple[int, ...] = (20,)
    sgd_steps: int = 16_000
    sgd_seeds: tuple[int, ...] = (0, 1)
    learning_rate: float = 1e-3
    batch_size: int = 128


def task(config: PaperConfig, setting: str) -> LinearRegression:
    """The intended task, or the released code's: prompts multiplied twice by the Cholesky factor, queries not at all."""
    d, sigma = config.dim, covariance("toeplitz", config.dim)
    prior = torch.eye(d, dtype=F) / d
    if setting == "intended":
        return LinearRegression(sigma, prior, config.noise_variance)
    factor = torch.linalg.cholesky(sigma)
    twice = factor @ factor  # x = C(Cξ)
    return LinearRegression(twice @ twice.mT, prior, config.noise_variance, query_covariance=torch.eye(d, dtype=F))


def report_times(config: PaperConfig) -> NDArray[np.float64]:
    """Equally spaced to the end, and densely where SGD is laid over."""
    overlap = min(config.until, config.learning_rate * config.sgd_steps)
    return np.unique(np.append(np.linspace(0, config.until, config.times), np.linspace(0, overlap, config.times)))


def cells(config: PaperConfig) -> list[str]:
    """Flows of both attentions in both settings; SGD runs one by one."""
    flows = [f"flow {setting} {kind}" for setting in SETTINGS for kind in KINDS]
    return flows + [f"sgd {kind} {length} {seed}" for kind in KINDS for length in config.sgd_lengths for seed in config.sgd_seeds]


def compute(config: PaperConfig, cell: str, progress: Progress) -> xr.Dataset:
    """All lengths side by side by exact flow, or one SGD run as the authors ran it (the intended setting)."""
    what, *words = cell.split()
    start = Factorised.default(config.dim + 1, torch.Generator().manual_seed(config.seed))
    U, V = (part[0] for part in start.layer(start.start().unsqueeze(0)))
    if what == "sgd":
        kind, length, seed = words
        run = stochastic_gradient_descent(
            task(config, "intended"),
            KINDS[kind](U, V),
            int(length),
            config.learning_rate,
            config.sgd_steps,
            config.batch_size,
            torch.Generator().manual_seed(10_000 * int(seed) + 2 * int(length) + (kind == "softmax")),
            parametrisation=start,
            record=41,
            points=config.points,
            progress=lambda step: progress(f"SGD, {kind} attention, L = {length}: step {step:,}") if step % 100 == 0 else None,
        ).completed()
        return xr.Dataset({"risk": ("time", run.risk.numpy())}, coords={"time": run.times.numpy()})
    setting, kind = words
    chosen = task(config, setting)
    flow = gradient_flow(
        chosen,
        KINDS[kind](U, V),
        [*config.lengths, math.inf],
        config.until,
        parametrisation=start,
        times=report_times(config),
        tolerance=config.tolerance,
        points=config.points,
        progress=lambda time: progress(f"flow, {setting} setting, {kind} attention: time {time:.3g} of {config.until:g}"),
    ).completed()
    distance = torch.stack([_distance_to_bayes(chosen, *flow.parametrisation.layer(theta)) for theta in flow.parameters])
    data = flow.dataset[["risk", "gradient_norm"]].assign(
        distance=(("length", "time"), distance.numpy(), {"long_name": "infinite-prompt read-out less w.x, rms"})
    )
    bayes = [chosen.bayes_risk(length) for length in (*config.lengths, math.inf)]
    return data.assign(bayes_risk=("length", bayes)).drop_attrs()


def _distance_to_bayes(chosen: LinearRegression, U: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
    """Root mean square, over w and x_q, of the infinite prompt's read-out less the Bayes predictor w·x_q."""
    return (2 * chosen.limit_risk(U, V) - chosen.noise_variance).clamp_min(0.0).sqrt()


def combine(config: PaperConfig, parts: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Flows with dimensions setting and attention; SGD runs with attention, length and seed."""
    flows = xr.concat(
        [
            xr.concat([parts[f"flow {setting} {kind}"] for kind in KINDS], xr.Variable("attention", list(KINDS)))
            for setting in SETTINGS
        ],
        xr.Variable("setting", list(SETTINGS)),
    )
    if not config.sgd_lengths or not config.sgd_seeds:
        return flows
    first = parts[f"sgd softmax {config.sgd_lengths[0]} {config.sgd_seeds[0]}"]
    sgd = np.array(
        [
            [[parts[f"sgd {kind} {length} {seed}"].risk.values for seed in config.sgd_seeds] for length in config.sgd_lengths]
            for kind in KINDS
        ]
    )
    return flows.assign(sgd_risk=(("attention", "sgd_length", "sgd_seed", "sgd_time"), sgd)).assign_coords(
        sgd_length=list(config.sgd_lengths), sgd_seed=list(config.sgd_seeds), sgd_time=first.time.values
    )


def sgd_gap(data: xr.Dataset, of: float | None = None) -> xr.DataArray:
    """Relative difference between the risk along each SGD run and along the flow of its length (or of another), at its times."""
    lengths = data.sgd_length.astype(float) if of is None else of + 0 * data.sgd_length.astype(float)
    flow = data.risk.sel(setting="intended").sel(length=lengths).interp(time=data.sgd_time, method="cubic")
    flow = flow.drop_vars(["length", "time", "setting"])
    gap: xr.DataArray = data.sgd_risk / flow - 1
    return gap


def verdicts(data: xr.Dataset) -> list[Verdict]:
    """P1: both attentions come near the Bayes risk as L grows; who is better at each length; does SGD follow the flow?"""
    found = []
    for setting in SETTINGS:
        end = data.sel(setting=setting).isel(time=-1)
        finite = end.sel(length=slice(0, 1e9))
        soft, line = finite.risk.sel(attention="softmax"), finite.risk.sel(attention="linear")
        bayes = finite.bayes_risk.sel(attention="softmax")
        last = float(finite.length[-1])
        worse = bool((soft > line).all())
        limit = end.isel(length=-1)
        close = float((limit.risk / limit.bayes_risk).max())
        nearer = (finite.risk / finite.bayes_risk).isel(length=[0, -1])
        falls = bool((nearer.isel(length=1) <= nearer.isel(length=0)).all())
        found.append(
            Verdict(
                "P1",
                f"Does the authors' training bring both attentions to the Bayes risk as L grows? ({setting} setting)",
                "undecided" if float(data.time[-1]) < TRAINED else "holds" if close < 1.02 and falls else "fails",
                f"At t = {float(data.time[-1]):g} and L = {last:g}: softmax {float(soft[-1]):.4f}, linear {float(line[-1]):.4f}, "
                f"Bayes {float(bayes[-1]):.4f}; the infinite prompt is within {close - 1:.1%} of Bayes with either. "
                f"Softmax/linear from {float((soft / line).min()):.2f} to {float((soft / line).max()):.2f}: linear attention is "
                + ("better at every length." if worse else "not better at every length."),
            )
        )
    if "sgd_risk" in data:
        gap, runs = sgd_gap(data), data.sizes["sgd_seed"]
        noise = float(np.sqrt((gap.std("sgd_seed", ddof=1) ** 2 / runs).mean())) if runs > 1 else math.nan

        def follows(difference: xr.DataArray) -> tuple[Outcome, float]:
            """Within three standard errors of the mean over seeds, and within 5 %, both as root mean squares."""
            bias = float(np.sqrt((difference.mean("sgd_seed") ** 2).mean()))
            return ("undecided" if runs < 2 else "holds" if bias < min(3 * noise, 0.05) else "fails"), bias

        outcome, bias = follows(gap)
        found.append(
            Verdict(
                "P1",
                "Does SGD as the authors ran it follow the exact flow within its noise?",
                outcome,
                f"Up to t = {float(data.sgd_time[-1]):g}, at L = {', '.join(str(int(x)) for x in data.sgd_length)}, both "
                f"attentions: root mean square difference of the mean over {runs} seeds from the flow {bias:.2%} of the risk, "
                f"standard error of that mean {noise:.2%}; largest difference of a run {float(np.abs(gap).max()):.1%}.",
            )
        )
        other = float(data.length[-2])
        outcome, bias = follows(sgd_gap(data, other))
        asked = f"Does SGD at these lengths follow the flow of another length, L = {other:g}?"
        found.append(Verdict("P1", asked, outcome, f"Root mean square difference {bias:.2%} of the risk.", control=True))
    return found


STUDY = Study(
    "paper",
    "The authors' experiment",
    "What do softmax and linear attention learn at nineteen prompt lengths, and how near is the result to Bayes?",
    "The authors' training (d = 5, K, Q, V and read-out apart, PyTorch's default start, 300,000 steps of 10⁻³) is followed by "
    "exact gradient flow to time 300, all lengths side by side, no prompt drawn. Both the intended task and the one of the "
    "released code are run. SGD on drawn prompts, as the authors ran it, is laid over the first part of the flow.",
    PaperConfig,
    PaperConfig(
        lengths=(10, 100, 1000),
        until=20.0,
        times=21,
        points=1024,
        tolerance=1e-4,
        sgd_lengths=(10,),
        sgd_steps=2000,
        sgd_seeds=(0, 1),
    ),
    cells,
    compute,
    combine,
    verdicts,
)
