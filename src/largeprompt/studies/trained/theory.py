"""What the exact theory of one layer says before anything is trained: best risks, regimes, and the
risk of the affine read-out.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from largeprompt.attention import LinearAttention
from largeprompt.training import LinearRegression, SobolAverage, isotropic_optimum


def regression(dim: int, noise_variance: float) -> LinearRegression:
    """The task: x ~ N(0, I), w ~ N(0, I/d), noise of the given variance."""
    eye = torch.eye(dim, dtype=torch.float64)
    return LinearRegression(eye, eye / dim, noise_variance)


def common_optimum(task: LinearRegression, lengths: Sequence[int]) -> tuple[float, float, float]:
    """Least mean over several lengths of the exact risk of one head U = diag(aI, 0), v = (0, b):
    the risk, a and b.
    """
    from scipy.optimize import minimize

    first = isotropic_optimum(task, lengths[0])

    def mean_risk(logs: Any) -> tuple[float, Any]:
        point = torch.tensor(logs, dtype=torch.float64, requires_grad=True)
        a, b = (each.reshape(1) for each in point.exp())
        value = torch.stack([task.isotropic_risk(a, b, length)[0] for length in lengths]).mean()
        (slope,) = torch.autograd.grad(value, point)
        return float(value.detach()), slope.numpy()

    found = minimize(
        mean_risk, np.log([first.a, first.b]), jac=True, method="BFGS", options={"gtol": 1e-12}
    )
    a, b = np.exp(found.x)
    return float(found.fun), float(a), float(b)


def own_moment_risk(task: LinearRegression, U: Tensor, V: Tensor, length: float) -> Tensor:
    """Risk of each run when its one head is replaced by the affine read-out of the prompt's own
    moments, shape (run,).

    It answers v·(m̂ + Γ̂u). Of L Gaussian tokens m̂ ~ N(0, Γ/L) is independent of LΓ̂, a Wishart
    matrix of L - 1 degrees, so that with q = u·Γu, a = v·Γu, t the answer and V2 = v·Γv the risk
    is, without the 1/2,

        s² + ((1 - 1/L)a - t)² + (L - 1)(V2 q + a²)/L² + V2/L:

    that of linear attention with (1 - 1/L)v over L - 1 tokens, and V2/L for the mean.
    """
    # one token is its mean: nothing is kept of v
    d, kept, others = task.dim, (1 - 1 / length) * V, max(length - 1, 1)
    answers = torch.trace(task.covariance @ task.prior_covariance) + task.noise_variance  # E y²
    # E V2
    spread = (V[:, 0, :d] @ task.covariance * V[:, 0, :d]).sum(-1) + V[:, 0, d].square() * answers
    return task.linear_risk(U, kept, [others] * len(U)) + spread / (2 * length)


def predictions(
    task: LinearRegression, training_lengths: Sequence[int], lengths: Sequence[int]
) -> xr.Dataset:
    """Exact risks of the best one-head softmax and linear attention at each length, of the best for
    training, and Bayes.
    """
    from scipy.stats import chi2

    softmax = [isotropic_optimum(task, length) for length in lengths]
    linear = [isotropic_optimum(task, length, LinearAttention).risk for length in lengths]
    objective, a, b = common_optimum(task, training_lengths)
    point = (torch.tensor([a], dtype=torch.float64), torch.tensor([b], dtype=torch.float64))
    carried = [float(task.isotropic_risk(*point, length)[0]) for length in lengths]
    middle, logs = float(chi2.median(task.dim)), 2 * np.log(np.asarray(lengths, dtype=float))
    return xr.Dataset(
        {
            "softmax_optimum": ("length", [each.risk for each in softmax]),
            "linear_optimum": ("length", linear),
            "carried": ("length", carried),
            "bayes": (
                "length",
                [task.bayes_risk(length, average=SobolAverage(2**15)) for length in lengths],
            ),
            "optimal_alpha": (
                "length",
                np.sqrt(middle * np.array([each.a for each in softmax]) ** 2 / logs),
            ),
            "carried_alpha": ("length", np.sqrt(middle * a**2 / logs)),
            "objective_optimum": objective,
            "zero_risk": (1 + task.noise_variance) / 2,
            "floor": task.noise_variance / 2,
        },
        coords={"length": list(lengths)},
    )
