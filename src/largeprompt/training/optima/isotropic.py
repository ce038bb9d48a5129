"""The least risk that one layer can have, where it is a search over two numbers."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from largeprompt import validation
from largeprompt.training.tasks.regression import LinearRegression


@dataclasses.dataclass(frozen=True)
class IsotropicOptimum:
    """Least risk over A = aI and b, and where it is."""

    risk: float
    a: float
    b: float


def isotropic_optimum(
    task: LinearRegression, length: Any = math.inf, *, softmax: bool = True, start: tuple[float, float] | None = None
) -> IsotropicOptimum:
    """Least exact risk over U = diag(aI, 0), v = (0, b) for covariances that are multiples of the identity.

    A search in (log a, log b) on the one-dimensional form of the risk, with its gradient; no flow, no Sobol points. The infinite
    prompt has a whole curve of optima; the search ends on the point of it that is nearest to ``start``.

    Parameters
    ----------
    length
        From 1 to 10^15, or ``math.inf``.
    start
        First a and b, both positive; those of the infinite prompt's endpoint when left out.

    Examples
    --------
    >>> task = lp.LinearRegression([[1.0]], [[1.0]], 0.0)
    >>> found = lp.isotropic_optimum(task, 100, softmax=False)
    >>> print(f"{found.risk:.8f} {0.5 * 0.02 / 1.02:.8f}")  # ½ c/(1+c), c = (d + 1)/L
    0.00980392 0.00980392
    """
    from scipy.optimize import minimize

    length = validation.length("length", length, allow_infinity=True)
    sigma = float(task.covariance[0, 0])
    root = math.pow(task.dim, 0.25) / math.sqrt(sigma)
    first = (1 / (sigma * root), root) if start is None else tuple(validation.positive("start", value) for value in start)

    def risk(logs: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        point = torch.tensor(logs, dtype=torch.float64, requires_grad=True)
        a, b = point.exp()
        value = task.isotropic_risk(a.reshape(1), b.reshape(1), length, softmax=softmax)[0]
        (slope,) = torch.autograd.grad(value, point)
        return float(value.detach()), slope.numpy()

    found = minimize(risk, np.log(first), jac=True, method="BFGS", options={"gtol": 1e-12})
    a, b = np.exp(found.x)
    return IsotropicOptimum(float(found.fun), float(a), float(b))
