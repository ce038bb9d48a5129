"""What the exact theory of one layer says before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import xarray as xr

from largeprompt.attention import LinearAttention
from largeprompt.runs.study import Progress
from largeprompt.training import LinearRegression, isotropic_optimum

if TYPE_CHECKING:
    from largeprompt.studies.trained.study import TrainedConfig


def regression(config: TrainedConfig) -> LinearRegression:
    """The task: x ~ N(0, I), w ~ N(0, I/d), noise of the given variance."""
    eye = torch.eye(config.dim, dtype=torch.float64)
    return LinearRegression(eye, eye / config.dim, config.noise_variance)


def common_optimum(task: LinearRegression, lengths: Sequence[int]) -> tuple[float, float, float]:
    """Least mean risk of one head U = diag(aI, 0), v = (0, b) over several lengths: risk, a, b."""
    from scipy.optimize import minimize

    first = isotropic_optimum(task, lengths[0])

    def mean_risk(logs: Any) -> tuple[float, Any]:
        point = torch.tensor(logs, dtype=torch.float64, requires_grad=True)
        a, b = (each.reshape(1) for each in point.exp())
        value = torch.stack([task.isotropic_risk(a, b, length)[0] for length in lengths]).mean()
        (slope,) = torch.autograd.grad(value, point)
        return float(value.detach()), slope.numpy()

    start = np.log([first.a, first.b])
    found = minimize(mean_risk, start, jac=True, method="BFGS", options={"gtol": 1e-12})
    a, b = np.exp(found.x)
    return float(found.fun), float(a), float(b)


def theory(config: TrainedConfig, progress: Progress) -> xr.Dataset:
    """Exact risks of the best head, linear attention, the head best for training, and Bayes."""
    from scipy.stats import chi2

    progress("exact optima of one layer")
    task, lengths = regression(config), config.test_lengths
    objective, a, b = common_optimum(task, config.training_lengths)
    point = (torch.tensor([a], dtype=torch.float64), torch.tensor([b], dtype=torch.float64))
    risks = {
        "softmax_optimum": [isotropic_optimum(task, length).risk for length in lengths],
        "linear_optimum": [isotropic_optimum(task, n, LinearAttention).risk for n in lengths],
        "carried": [float(task.isotropic_risk(*point, length)[0]) for length in lengths],
        "bayes": [task.bayes_risk(length) for length in lengths],
        # at the median query
        "carried_alpha": np.sqrt(chi2.median(config.dim) * a**2 / (2 * np.log(lengths))),
    }
    return xr.Dataset(
        {
            **{name: ("length", values) for name, values in risks.items()},
            "objective_optimum": objective,
            "zero_risk": (1 + config.noise_variance) / 2,
            "floor": config.noise_variance / 2,
        },
        coords={"length": list(lengths)},
    )
