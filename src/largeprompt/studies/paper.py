"""P1, the authors' own experiment: K, Q, V and a read-out trained apart, softmax against linear."""

import math
from itertools import product
from typing import Any, Self

import numpy as np
import pydantic
import torch
import xarray as xr

from largeprompt.attention import Attention
from largeprompt.runs.judging import Finding, at, judged, rule
from largeprompt.runs.settings import (
    Count,
    Dimension,
    Distinct,
    Few,
    Increasing,
    Length,
    NonNegative,
    Positive,
    Seed,
    settings,
)
from largeprompt.runs.study import Part, Progress, Study, along
from largeprompt.runs.style import COLORS, MARKERS, Axes, curves, describe, entry, study_figure
from largeprompt.studies.claims import claims
from largeprompt.studies.covariances import KINDS, F, covariance
from largeprompt.studies.variables import labels
from largeprompt.training import (
    Factorized,
    LinearRegression,
    gradient_flow,
    stochastic_gradient_descent,
)

SETTINGS = ("intended", "released")
TRAINED = 300.0  # the authors' 300,000 steps of 1e-3


@settings
class PaperConfig:
    """The authors' numbers: d = 5, noise 0.1, w ~ N(0, I/d), Σ_ij = 0.5^|i-j|, batch 128."""

    dim: Dimension = 5
    noise_variance: NonNegative = 0.1  # variance of the noise in the answers
    lengths: Increasing[Length] = (*range(10, 101, 10), *range(200, 1001, 100))
    until: Positive = TRAINED  # time at which the flows end
    times: Few = 61  # recorded times
    tolerance: Positive = 1e-5  # relative error of a step of the flows
    seed: Seed = 0
    sgd_lengths: Distinct[Length] = (20,)  # prompt lengths of SGD
    sgd_steps: Count = 14_000  # steps of SGD; 300,000 follow it to the end
    sgd_seeds: Distinct[Seed] = (0, 1)  # seeds of SGD
    learning_rate: Positive = 1e-3  # step size of SGD
    batch_size: Count = 128  # prompts in a batch

    @pydantic.model_validator(mode="after")
    def consistent(self) -> Self:
        """Runs of SGD are compared with the flow of their length."""
        if not set(self.sgd_lengths) <= set(self.lengths):
            raise ValueError(f"sgd_lengths {self.sgd_lengths} must be among lengths {self.lengths}")
        return self


def task(config: PaperConfig, setting: str) -> LinearRegression:
    """The intended task, or that of the released code.

    The latter multiplies prompts twice by the Cholesky factor, and queries not at all.
    """
    d, sigma = config.dim, covariance("toeplitz", config.dim)
    prior = torch.eye(d, dtype=F) / d
    if setting == "intended":
        return LinearRegression(sigma, prior, config.noise_variance)
    factor = torch.linalg.cholesky(sigma)
    twice = factor @ factor  # x = C(Cξ)
    return LinearRegression(
        twice @ twice.mT, prior, config.noise_variance, query_covariance=torch.eye(d, dtype=F)
    )


def start(config: PaperConfig, kind: str) -> tuple[Factorized, Attention]:
    """PyTorch's default start of K, Q, V and the read-out, and the layer that it makes."""
    factors = Factorized.default(config.dim + 1, torch.Generator().manual_seed(config.seed))
    U, V = (part[0] for part in factors.layer(factors.start().unsqueeze(0)))
    return factors, KINDS[kind](U, V)


def flows(config: PaperConfig, setting: str, kind: str, progress: Progress) -> xr.Dataset:
    """Risks of all lengths side by side along the exact flow, and the Bayes risks."""
    chosen, (factors, layer) = task(config, setting), start(config, kind)
    lengths = [*config.lengths, math.inf]
    # dense where SGD is laid over
    ends = (config.until, min(config.until, config.learning_rate * config.sgd_steps))
    flow = gradient_flow(
        chosen,
        layer,
        lengths,
        config.until,
        parametrization=factors,
        tolerance=config.tolerance,
        times=np.unique([np.linspace(0, end, config.times) for end in ends]),
        progress=lambda time: progress(f"time {time:.3g} of {config.until:g}"),
    ).completed()
    bayes = [chosen.bayes_risk(length) for length in lengths]
    return flow.to_xarray()[["risk"]].assign(bayes_risk=("length", bayes)).drop_attrs()


def sgd(config: PaperConfig, kind: str, length: int, seed: int, progress: Progress) -> xr.Dataset:
    """Risk along one run of SGD as the authors ran it, in the intended setting."""
    factors, layer = start(config, kind)
    generator = torch.Generator().manual_seed(10_000 * seed + 2 * length + (kind == "softmax"))
    options: dict[str, Any] = {"parametrization": factors, "record": 41}
    options["progress"] = lambda step: progress(f"step {step:,}") if step % 100 == 0 else None
    run = stochastic_gradient_descent(
        task(config, "intended"),
        layer,
        length,
        config.learning_rate,
        config.sgd_steps,
        config.batch_size,
        generator,
        **options,
    ).completed()
    return xr.Dataset(
        {"sgd_risk": ("sgd_time", run.risk.numpy())}, coords={"sgd_time": run.times.numpy()}
    )


@rule("P1", "Does the authors' training bring both attentions to the Bayes risk as L grows?")
def trained(data: xr.Dataset) -> Finding:
    """In both settings; undecided where training was shorter than the authors'."""
    end = data.isel(time=-1)
    finite = end.sel(length=np.isfinite(end.length))
    close = float((end.risk / end.bayes_risk).isel(length=-1).max()) - 1
    above = finite.risk / finite.bayes_risk
    falls = bool((above.isel(length=-1) <= above.isel(length=0)).all())
    ratio = finite.risk.sel(attention="softmax") / finite.risk.sel(attention="linear")
    last = finite.isel(length=-1).sel(setting="intended")
    outcome = judged(close < 0.02 and falls, rests_on=[close, above])
    return Finding(
        "undecided" if float(data.time[-1]) < TRAINED else outcome,
        "The authors' training brings both attentions near the Bayes risk; softmax ends at up to "
        f"{float(ratio.max()):.2f} times the risk of linear attention.",
        "The authors' training does not bring both attentions to the Bayes risk.",
        {
            f"risk at L = {float(last.length):g}, softmax": last.risk.sel(attention="softmax"),
            "linear": last.risk.sel(attention="linear"),
            "Bayes": last.bayes_risk[0],
            "softmax over linear, both settings": ratio,
            "infinite prompt above Bayes, relatively": close,
        },
    )


def sgd_gap(data: xr.Dataset, of: float | None = None) -> xr.DataArray:
    """Relative difference of the risk along SGD from that of the flow of its length, or another."""
    lengths = 0 * data.sgd_length + (data.sgd_length if of is None else of)
    flow = at(data.risk.sel(setting="intended"), length=lengths.astype(float))
    flow = flow.interp(time=data.sgd_time, method="cubic")
    gap: xr.DataArray = data.sgd_risk / flow.drop_vars(["length", "time", "setting"]) - 1
    return gap


def root_mean_square(gap: xr.DataArray) -> float:
    """Of the mean over seeds, over times and attentions."""
    return float(np.sqrt((gap.mean("sgd_seed", skipna=False) ** 2).mean(skipna=False)))


@rule("P1", "Does SGD as the authors ran it follow the exact flow, within 2 % of its risk?")
def sgd_follows(data: xr.Dataset) -> Finding:
    """By the mean over seeds."""
    gap = sgd_gap(data)
    bias = root_mean_square(gap)
    return Finding(
        judged(bias < 0.02, rests_on=[bias]),
        numbers={
            "relative difference of the mean risk": bias,
            "largest difference of a run": abs(gap).max(),
            "up to time": data.sgd_time[-1],
        },
    )


@rule("P1", "Does SGD at these lengths follow the flow of the longest prompts?", control=True)
def other_length(data: xr.Dataset) -> Finding:
    """Fails where the lengths matter."""
    longest = float(data.length[-2])
    bias = root_mean_square(sgd_gap(data, longest))
    return Finding(
        judged(bias < 0.02, rests_on=[bias]),
        numbers={"relative difference": bias, "from the flow at L": longest},
    )


@study_figure(
    "trained",
    "Risk at the end of the authors' training against L, with the Bayes risk; dotted: L = ∞.",
    size=(7.6, 3.2),
    panels=lambda data: (1, data.sizes["setting"]),
    cards={"P1": 0},
    sharey=True,
)
def trained_risks(data: xr.Dataset, *panels: Axes) -> None:
    """Risk against L at the end of training, both attentions and settings, with the Bayes line."""
    last = data.isel(time=-1)
    for axes, setting in zip(panels, data.setting.values, strict=True):
        part = last.sel(setting=setting, length=data.length[np.isfinite(data.length)])
        for i, kind, risk in curves(part.risk, "attention"):
            axes.plot(part.length, risk, MARKERS[i] + "-", color=COLORS[i], label=kind)
            limit = float(last.risk.sel(setting=setting, attention=kind)[-1])
            axes.axhline(limit, color=COLORS[i], lw=0.8, ls=":")
        axes.plot(part.length, part.bayes_risk[0], color="black", ls="--", label="Bayes")
        title = f"{setting} setting, $t={data.time[-1]:g}$"
        describe(axes, "prompt length $L$", "", title, log="xy")
    entry(panels[0], r"$L=\infty$", lw=0.8, ls=":")
    describe(panels[0], "", "population risk", legend=7.5)


@study_figure(
    "sgd",
    "Risk along SGD as the authors ran it (marks) over the exact flow (lines).",
    size=(7.6, 3.2),
    panels=lambda data: (1, data.sizes["attention"]),
    sharey=True,
)
def sgd_risks(data: xr.Dataset, *panels: Axes) -> None:
    """SGD on drawn prompts, as the authors ran it, over the exact flow."""
    part = data.sel(setting="intended", time=data.time[data.time <= float(data.sgd_time[-1]) * 1.2])
    for axes, kind in zip(panels, data.attention.values, strict=True):
        for i, length, runs in curves(data.sgd_risk.sel(attention=kind), "sgd_length"):
            flow = part.risk.sel(attention=kind, length=float(length))
            axes.plot(part.time, flow, color=COLORS[i], label=f"$L={length}$, exact flow")
            for run in runs.transpose("sgd_seed", ...):
                axes.plot(data.sgd_time, run, MARKERS[i], color=COLORS[i], ms=3, mfc="none")
        entry(axes, "SGD on drawn prompts", marker="o", ls="none", ms=3, mfc="none")
        axes.set(xlabel="time $t$ (steps times learning rate)", title=f"{kind} attention")
    describe(panels[0], "", "population risk", legend=7.5)


LABELS = {  # what the variables of the dataset are, and their units
    "bayes_risk": "Bayes risk",
    "sgd_risk": "population risk along SGD",
    "setting": "setting of the experiment",
    "sgd_length": "prompt length of SGD [tokens]",
    "sgd_seed": "seed of SGD",
    "sgd_time": "time of SGD: steps times step size",
}

STUDY = Study(
    name="paper",
    title="The authors' experiment",
    question="What do softmax and linear attention learn at nineteen prompt lengths, and how near "
    "is the result to Bayes?",
    method="The authors' training (d = 5, K, Q, V and read-out apart, PyTorch's default start, "
    "300,000 steps of 10⁻³) is followed by exact gradient flow to time 300, for the intended task "
    "and the one of the released code. SGD on drawn prompts is laid over the first part.",
    config=PaperConfig,
    quick=PaperConfig(
        lengths=(10, 100, 1000),
        until=20.0,
        times=21,
        tolerance=1e-4,
        sgd_lengths=(10,),
        sgd_steps=3000,
        learning_rate=4e-3,
    ),
    parts=[
        Part("flow", flows, lambda config: product(SETTINGS, KINDS), along("setting", "attention")),
        Part(
            "SGD",
            sgd,
            lambda config: product(KINDS, config.sgd_lengths, config.sgd_seeds),
            along("attention", "sgd_length", "sgd_seed"),
        ),
    ],
    rules=(trained, sgd_follows, other_length),
    figures=(trained_risks, sgd_risks),
    claims=claims("P1"),
    variables=labels(LABELS),
)
