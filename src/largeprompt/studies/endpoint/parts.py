"""Infinite-prompt flows from five starts until their gradient vanishes, and the end points that the
conserved quantity allows.
"""

import math
from typing import Any

import numpy as np
import torch
import xarray as xr

from largeprompt.attention import SoftmaxAttention
from largeprompt.runs.settings import Dimension, Distinct, Positive, Seed, settings
from largeprompt.runs.study import Progress
from largeprompt.studies.covariances import Covariance, block_start, covariance, largest_alpha
from largeprompt.training import LinearRegression, gradient_flow

STARTS = {
    "balanced": (0.9, 1.0),
    "balanced, alpha 3 times the bound": (3.0, 1.0),
    "unbalanced, b(0) = 3 |A(0)|": (0.9, 3.0),
    "unbalanced, b(0) = |A(0)|/3": (0.9, 1 / 3),
    "balanced, b(0) < 0": (0.9, -1.0),
}  # ‖A(0)‖_F in units of the theorem's bound, and b(0)/‖A(0)‖_F


@settings
class EndpointConfig:
    """Covariances and dimensions; each is started in five ways, two of them as the theorem asks."""

    covariances: Distinct[Covariance] = ("identity", "toeplitz", "condition 1e4")
    dims: Distinct[Dimension] = (2, 5, 20)
    tolerance: Positive = 1e-9
    gradient_tolerance: Positive = 1e-12
    seed: Seed = 1


def flows(config: EndpointConfig, kind: str, d: int, progress: Progress) -> xr.Dataset:
    """Flow of the infinite prompt until its gradient vanishes, from each start; the theorem's
    endpoint beside it.
    """
    sigma = covariance(kind, d)
    inverse, eye = torch.linalg.inv(sigma), torch.eye(d, dtype=sigma.dtype)
    task = LinearRegression(sigma, eye, 0.0)
    size_end = float(torch.trace(torch.linalg.inv(sigma @ sigma)))  # tr Σ^{-2}
    solver: dict[str, Any] = {
        "parametrisation": "block",
        "method": "BDF",
        "times": np.logspace(-2, 14, 161),
    }
    # beside few large entries a solver follows the rounding of small ones
    coarser = max(1.0, 20 / d) if size_end**0.25 > 10 else 1.0
    solver |= {
        "tolerance": coarser * config.tolerance,
        "gradient_tolerance": config.gradient_tolerance,
    }
    found = []
    for label, (size, ratio) in STARTS.items():
        norm = size * largest_alpha(sigma)
        start = SoftmaxAttention(*block_start(d, norm, ratio * norm, config.seed))
        watch = lambda time, label=label: progress(f"{label}, time {time:.3g}")  # noqa: E731
        flow = gradient_flow(task, start, math.inf, 1e14, progress=watch, **solver).completed()
        A, b = (part[0] for part in flow.parametrisation.split(flow.parameters[-1:]))  # type: ignore[attr-defined]
        b_end = endpoint(norm**2 * (ratio**2 - 1), size_end) * math.copysign(1.0, ratio)
        A_end = inverse / b_end
        found.append(
            {
                "b": float(b),
                "theorem_error": abs(float(b) / size_end**0.25 - 1),
                "b_error": abs(float(b) / b_end - 1),
                "A_error": float((A - A_end).norm() / A_end.norm()),
                "product_error": float((b * sigma @ A - eye).norm() / math.sqrt(d)),
                "drift": float((flow.conserved - flow.conserved[0]).abs().max())
                / max(1.0, float(b) ** 2),
                "risk": float(flow.risk[-1]),
                "slow_time": float(flow.times[-1]),
                "converged": float(flow.status == "converged"),
            }
        )
    data = xr.Dataset({name: ("start", [row[name] for row in found]) for name in found[0]})
    return data.assign_coords(start=list(STARTS)).assign(theorem_b=size_end**0.25)


def endpoint(conserved: float, size: float) -> float:
    """b with b² - tr(Σ^{-2})/b² the conserved value: where bΣA = I meets the hyperbola on which the
    flow moves.
    """
    return math.sqrt((conserved + math.sqrt(conserved**2 + 4 * size)) / 2)
