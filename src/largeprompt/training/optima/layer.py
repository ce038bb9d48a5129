"""The best that one layer can do on in-context linear regression, softmax or linear, for any
covariances.

Everything is about U = diag(A, 0), v = (0, b): formulas (risk.8) to (risk.12) of
docs/mathematics/regression.md.
"""

import dataclasses
import math

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.devices import sheltered
from largeprompt.training.tasks.regression import LinearRegression


@dataclasses.dataclass(frozen=True, eq=False)
class LinearOptimum:
    """Least risk of linear attention, and the matrix P = bA that attains it."""

    risk: float
    matrix: Tensor


@sheltered
def linear_optimum(task: LinearRegression, length: float = math.inf) -> LinearOptimum:
    """Least risk of linear attention at a length, in closed form for any Σ, Σ_q, W and noise.

    Formulas (risk.8-10) of docs/mathematics/regression.md.

    Parameters
    ----------
    length
        From 1 to 10^15, or ``math.inf``.

    Returns
    -------
    LinearOptimum
        The risk and P = bA.

    Examples
    --------
    >>> task = lp.LinearRegression([[2.0, 0.0], [0.0, 0.5]], [[1.0, 0.0], [0.0, 1.0]], 0.1)
    >>> print(*(f"{lp.training.linear_optimum(task, n).risk:.6f}" for n in (100, math.inf)))
    0.087078 0.050000
    """
    validation.instance("task", task, LinearRegression, "a LinearRegression")
    length = validation.length("length", length, allow_infinity=True)
    short = 0.0 if math.isinf(length) else 1 / length
    sigma, prior, query = task.covariance, task.prior_covariance, task.query_covariance
    read = prior @ sigma
    spread = torch.trace(read) + task.noise_variance
    normal = (1 + short) * read + short * spread * torch.eye(task.dim, dtype=sigma.dtype)
    # a singular W leaves directions without meaning
    matrix = torch.linalg.lstsq(normal, prior, driver="gelsd").solution
    twice = task.noise_variance + torch.trace(prior @ query) - torch.trace(query @ read @ matrix)
    return LinearOptimum(float(twice) / 2, matrix)
