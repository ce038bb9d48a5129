"""Flows of long prompts beside that of the infinite prompt: near it, after it, and their ends."""

import math
from typing import Any

import numpy as np
import torch
import xarray as xr

from largeprompt.attention import SoftmaxAttention
from largeprompt.runs.study import Progress
from largeprompt.studies.covariances import KINDS, F, block_start, covariance, largest_alpha
from largeprompt.studies.training.config import TrainingConfig
from largeprompt.training import LinearRegression, Trajectory, gradient_flow, isotropic_optimum
from largeprompt.training import tube as tube_around

STARTS = {
    "balanced": (0.9, 1.0),
    "balanced, alpha 3 times the bound": (3.0, 1.0),
    "unbalanced, b(0) = 3 |A(0)|": (0.9, 3.0),
    "unbalanced, b(0) = |A(0)|/3": (0.9, 1 / 3),
    "balanced, b(0) < 0": (0.9, -1.0),
}  # ‖A(0)‖_F in units of the theorem's bound, and b(0)/‖A(0)‖_F


def tube(config: TrainingConfig, kind: str, progress: Progress) -> xr.Dataset:
    """Flows of all lengths around the infinite prompt's; gradients on its way; another start."""
    d, sigma, until = config.dim, covariance(config.covariance, config.dim), config.until
    task, alpha = LinearRegression(sigma, torch.eye(d, dtype=F), 0.0), 0.9 * largest_alpha(sigma)
    balanced, other = (KINDS[kind](*block_start(d, alpha, b)) for b in (alpha, 3 * alpha))
    options: dict[str, Any] = {
        "parametrization": "block",
        "times": np.append(0.0, np.geomspace(until / 1000, until, config.times)),
    }
    watch = lambda time: progress(f"time {time:.3g}")  # noqa: E731
    found = tube_around(task, balanced, list(config.lengths), until, progress=watch, **options)
    astray = gradient_flow(task, other, config.lengths[-1], until, **options).completed()
    data = found.to_xarray()[["distance", "envelope"]]
    data["astray"] = ("time", (astray.parameters - found.limit.parameters[0]).norm(dim=-1).numpy())
    data["limit_theta"] = (("time", "parameter"), found.limit.parameters[0].numpy())
    data = data.assign_coords(parameter=found.flow.parametrization.names())
    data = data.merge(_gradients(config, found.limit))
    return data.rename({name: f"{kind}_{name}" for name in data.data_vars})


def _gradients(config: TrainingConfig, limit: Trajectory) -> xr.Dataset:
    """Cosine and relative distance of the gradients of R_L and R_∞ where the limit flow passes."""
    lengths = list(config.gradient_lengths)
    finite, endless = (limit.objective.with_lengths(each) for each in (lengths, [math.inf]))
    cosines, distances = [], []
    for time in config.gradient_times:
        theta = limit.theta(time)
        there, here = endless.gradient(theta)[1], finite.gradient(theta.expand(len(lengths), -1))[1]
        cosines.append(torch.cosine_similarity(here, there, dim=-1).tolist())
        distances.append(((here - there).norm(dim=-1) / there.norm()).tolist())
    grid = ("gradient_time", "gradient_length")
    return xr.Dataset(
        {"gradient_cosine": (grid, cosines), "gradient_distance": (grid, distances)},
        {"gradient_time": list(config.gradient_times), "gradient_length": np.array(lengths, float)},
    )


def excess(config: TrainingConfig, d: int, progress: Progress) -> xr.Dataset:
    """Excess risk at the infinite prompt's end and at each length's optimum, Σ = dW = I."""
    task = LinearRegression(torch.eye(d, dtype=F), torch.eye(d, dtype=F) / d, 0.0)
    lengths = np.logspace(1, config.excess_decades, 2 * config.excess_decades - 1).round()
    b_end, c = d**0.25, (d + 1) / lengths
    a, b = torch.tensor([1 / b_end], dtype=F), torch.tensor([b_end], dtype=F)
    at_end = [float(task.isotropic_risk(a, b, float(length))[0]) for length in lengths]
    found = {"softmax_at_limit_endpoint": at_end, "linear_predicted": (c / (1 + c) / 2).tolist()}
    for kind, attention in KINDS.items():
        start, risks = (1 / b_end, b_end), list[float]()
        # from the longest prompt, so that each optimum starts the search of the next
        for length in lengths[::-1]:
            progress(f"{kind}, L = {length:.3g}")
            best = isotropic_optimum(task, float(length), attention, start=start)
            start, risks = (best.a, best.b), [best.risk, *risks]
        found[f"{kind}_best"] = risks
    data = {name: (("dim", "excess_length"), [values]) for name, values in found.items()}
    return xr.Dataset(data, {"dim": [d], "excess_length": lengths})


def drift(config: TrainingConfig, progress: Progress) -> xr.Dataset:
    """All lengths far beyond the time at which they look finished, and the optimum of each."""
    d = config.drift_dim
    task = LinearRegression(torch.eye(d, dtype=F), torch.eye(d, dtype=F), 0.0)
    lengths = list(config.drift_lengths)
    flow = gradient_flow(
        task,
        SoftmaxAttention(*block_start(d, 0.3, 0.3)),
        lengths,
        config.drift_until,
        parametrization="block",
        tolerance=1e-6,
        times=np.logspace(-1, math.log10(config.drift_until), config.drift_times),
        progress=lambda time: progress(f"time {time:.3g}"),
    ).completed()
    optimal = [
        d**0.25 if math.isinf(length) else isotropic_optimum(task, length, start=(0.4, 2.4)).b
        for length in lengths
    ]
    grid = ("drift_length", "drift_time")
    return xr.Dataset(
        {
            "drift_b": (grid, flow.parameters[..., -1].numpy()),
            "drift_risk": (grid, flow.risk.numpy()),
            "drift_optimal_b": ("drift_length", optimal),
            "drift_theorem_b": d**0.25,
        },
        {"drift_length": np.asarray(lengths, dtype=float), "drift_time": flow.times.numpy()},
    )


def ends(config: TrainingConfig, kind: str, d: int, progress: Progress) -> xr.Dataset:
    """Infinite-prompt flow until its gradient vanishes, from each start, against the theorem."""
    sigma = covariance(kind, d)
    task = LinearRegression(sigma, torch.eye(d, dtype=F), 0.0)
    inverse, size = torch.linalg.inv(sigma), float(torch.trace(torch.linalg.inv(sigma @ sigma)))
    # beside few large entries a solver follows the rounding of small ones
    tolerance = 1e-9 * (max(1.0, 20 / d) if size**0.25 > 10 else 1.0)
    options: dict[str, Any] = {"parametrization": "block", "method": "BDF", "tolerance": tolerance}
    options |= {"gradient_tolerance": 1e-12, "times": np.logspace(-2, 14, 161)}
    found = []
    for label, (share, ratio) in STARTS.items():
        norm = share * largest_alpha(sigma)
        start = SoftmaxAttention(*block_start(d, norm, ratio * norm, seed=1))
        options["progress"] = lambda time, label=label: progress(f"{label}, time {time:.3g}")
        flow = gradient_flow(task, start, math.inf, 1e14, **options).completed()
        b, A = float(flow.parameters[-1, -1]), flow.parameters[-1, :-1].reshape(d, d)
        b_end = endpoint(norm**2 * (ratio**2 - 1), size) * math.copysign(1.0, ratio)
        A_end = inverse / b_end
        moved = float((flow.conserved - flow.conserved[0]).abs().max())
        found.append(
            {
                "end_b": b,
                "end_theorem_error": abs(b / size**0.25 - 1),
                "end_b_error": abs(b / b_end - 1),
                "end_A_error": float((A - A_end).norm() / A_end.norm()),
                "end_conserved_error": moved / max(1.0, b**2),
                "end_risk": float(flow.risk[-1]),
                "end_converged": float(flow.status == "converged"),
            }
        )
    data = xr.Dataset({name: ("start", [row[name] for row in found]) for name in found[0]})
    return data.assign_coords(start=list(STARTS))


def endpoint(conserved: float, size: float) -> float:
    """b with b² - tr(Σ^{-2})/b² the conserved value: where bΣA = I meets the flow's hyperbola."""
    return math.sqrt((conserved + math.sqrt(conserved**2 + 4 * size)) / 2)
