"""Do L → ∞ and t → ∞ commute? The gradient flow of long prompts, followed far beyond the time at which it looks finished."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import torch
import xarray as xr

from largeprompt.attention import SoftmaxAttention
from largeprompt.runs.study import Progress, Study, Verdict, log_slope, merged
from largeprompt.studies.covariances import F, block_start
from largeprompt.training import LinearRegression, gradient_flow, isotropic_optimum

ARRIVED = 3.0  # flow times in units of L after which the drift is over


@dataclasses.dataclass(frozen=True)
class DriftConfig:
    """Noiseless in-context regression with identity covariance, from the balanced start of the paper's Theorem 5.1."""

    dim: int = 3
    alpha: float = 0.3
    lengths: tuple[float, ...] = (1e2, 1e3, 1e4, 1e5, math.inf)
    until: float = 3e5
    times: int = 121
    points: int = 4096
    seed: int = 0


def cells(config: DriftConfig) -> list[str]:
    """All lengths side by side in one system."""
    return ["flow"]


def compute(config: DriftConfig, cell: str, progress: Progress) -> xr.Dataset:
    """The flows, the endpoint that the theorem predicts for the infinite prompt, and the optimum of each length."""
    d = config.dim
    task = LinearRegression(torch.eye(d, dtype=F), torch.eye(d, dtype=F), 0.0)
    optimal = [d**0.25 if math.isinf(length) else isotropic_optimum(task, length, start=(0.4, 2.4)).b for length in config.lengths]
    flow = gradient_flow(
        task,
        SoftmaxAttention(*block_start(d, config.alpha, config.alpha)),
        list(config.lengths),
        config.until,
        parametrisation="block",
        points=config.points,
        seed=config.seed,
        tolerance=1e-6,
        times=np.logspace(-1, math.log10(config.until), config.times),
        progress=lambda time: progress(f"time {time:.3g}"),
    ).completed()
    data = flow.dataset[["risk", "conserved"]].drop_attrs()
    data["b"] = flow.dataset.theta.sel(parameter="b").drop_vars("parameter")
    return data.assign(predicted_b=d**0.25, optimal_b=("length", optimal))


def verdicts(data: xr.Dataset) -> list[Verdict]:
    """The infinite flow ends at the theorem's b, the finite ones at their own optimum; the risks tend to the Bayes risk, 0."""
    finite = np.isfinite(data.length.values)
    end, until = data.isel(time=-1), float(data.time[-1])
    theorem = float(data.predicted_b)
    arrived = end.isel(length=np.flatnonzero(finite & (data.length.values * ARRIVED <= until * (1 + 1e-9))))
    limit = float(abs(end.b.sel(length=np.inf) / theorem - 1))
    far = float(arrived.b[-1] / theorem - 1)
    own = float(abs(arrived.b / arrived.optimal_b - 1).max())
    length = float(arrived.length[-1])
    risks = end.risk.isel(length=np.flatnonzero(finite))
    slope = log_slope(risks.length, risks)
    moved = float(abs(data.conserved.sel(length=length) - data.conserved.sel(length=length).isel(time=0)).max())
    early = data.sel(time=3.0, length=length, method="nearest")
    return [
        Verdict(
            "C6",
            "Do the parameters of a long prompt's flow end near those of the infinite prompt's?",
            "fails" if abs(far) > 0.1 and own < 0.03 else "undecided" if own >= 0.03 else "holds",
            f"At L = {length:g} and t = {until:g}, b = {float(arrived.b[-1]):.3f} against tr(Σ⁻²)^¼ = {theorem:.3f}, "
            f"{far:+.0%}; at every L that has had the time it is within {own:.1%} of the optimum of its own length"
            + (": the limits in L and t do not commute." if abs(far) > 0.1 and own < 0.03 else "."),
        ),
        Verdict(
            "C5",
            "Do the risks at the end tend to the infinite prompt's all the same?",
            "holds" if bool((risks.diff("length") < 0).all()) and slope < -0.7 else "fails",
            f"Risk {', '.join(f'{float(r):.2g} (L = {float(r.length):g})' for r in risks)}: like L^{slope:.2f}. "
            f"The drift pays: at L = {length:g} it lowers the risk from {float(early.risk):.2g} "
            f"at t = {float(early.time):.2g} to {float(arrived.risk[-1]):.2g}.",
        ),
        Verdict(
            "C6",
            "Does the infinite-prompt flow, solved beside the others, end at tr(Σ⁻²)^¼?",
            "holds" if limit < 1e-3 else "fails",
            f"b is there to {limit:.1e}.",
        ),
        Verdict(
            "C6",
            "Is b² - ‖A‖² conserved at finite length?",
            "fails" if moved > 0.1 else "holds",
            f"It moves by {moved:.2g} at L = {length:g}.",
            control=True,
        ),
    ]


STUDY = Study(
    "drift",
    "The limits in L and t do not commute",
    "Does training on a long prompt, for a long time, end where training on the infinite prompt ends?",
    "Gradient flows on the exact risks of several lengths and of the infinite prompt run side by side, identity covariance, far "
    "beyond the time at which they look finished. The read-out b at the end is compared with the theorem's and with the optimum "
    "of each length, found without a flow.",
    DriftConfig,
    DriftConfig(points=256, until=3e3),
    cells,
    compute,
    merged,
    verdicts,
)
