"""The least risk that one layer can have, where it is a search over two numbers."""

import dataclasses
import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import Attention, SoftmaxAttention
from largeprompt.devices import sheltered
from largeprompt.errors import InvalidArgumentError
from largeprompt.training.optima.scan import scan_minimum
from largeprompt.training.risk.scores import LARGEST_SCORE_VARIANCE, RiskError, is_softmax
from largeprompt.training.tasks.regression import LinearRegression

CLOSE = 1e-4  # of log a and log b: the last step of a search that has ended
SHARP = 100.0  # score variance of a query of unit length at which the search gives way to a scan


@dataclasses.dataclass(frozen=True)
class IsotropicOptimum:
    """Least risk over A = aI and b, and where it is."""

    risk: float
    a: float
    b: float


@sheltered
def isotropic_optimum(
    task: LinearRegression,
    length: float = math.inf,
    kind: type[Attention] = SoftmaxAttention,
    *,
    start: tuple[float, float] | None = None,
) -> IsotropicOptimum:
    """Least exact risk over U = diag(aI, 0), v = (0, b) for covariances that are multiples of the
    identity.

    A search in (log a, log b) on the exact risk, with its gradient. The infinite prompt has a whole
    curve of optima; the search ends on the point of it that is nearest to ``start``. Prompts of a
    few tokens may have several valleys, or be best read by their largest token alone: where scores
    of variance 100 and more are met, a scan over a with the best b of each takes its place.

    Parameters
    ----------
    length
        From 1 to 10^15, or ``math.inf``.
    kind
        SoftmaxAttention or LinearAttention.
    start
        First a and b, both positive; those of the infinite prompt's endpoint when left out.

    Returns
    -------
    IsotropicOptimum
        The risk, a and b.

    Examples
    --------
    >>> task = lp.LinearRegression([[1.0]], [[1.0]], 0.0)
    >>> found = lp.training.isotropic_optimum(task, 100, lp.LinearAttention)
    >>> print(f"{found.risk:.8f} {0.5 * 0.02 / 1.02:.8f}")  # ½ c/(1+c), c = (d + 1)/L
    0.00980392 0.00980392
    """
    from scipy.optimize import minimize

    validation.instance("task", task, LinearRegression, "a LinearRegression")
    length = validation.length("length", length, allow_infinity=True)
    softmax, (sigma, query, _) = is_softmax(kind), task.isotropic_scales()
    root = math.pow(task.dim, 0.25) / math.sqrt(sigma)
    given = (
        (1 / (sigma * root), root)
        if start is None
        else validation.listed("start", start, "a and b, two positive numbers")
    )
    first = [validation.positive("start", value) for value in given]
    if len(first) != 2:
        raise InvalidArgumentError("start", validation.text(start), "a and b, two positive numbers")

    def value_at(logs: Tensor) -> Tensor:
        a, b = logs.exp()
        return task.isotropic_risk(a.reshape(1), b.reshape(1), length, kind)[0]

    def risk(logs: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        point = torch.tensor(logs, dtype=torch.float64, requires_grad=True)
        if softmax and math.isfinite(length) and not math.exp(2 * logs[0]) * sigma * query <= SHARP:
            raise RiskError("isotropic_optimum: a step that leads too far")
        value = value_at(point)
        (slope,) = torch.autograd.grad(value, point)
        return float(value.detach()), slope.numpy()

    try:
        found = minimize(risk, np.log(first), jac=True, method="BFGS", options={"gtol": 1e-12})
    except RiskError:
        return _scan(task, length, sigma * query)
    logs = torch.from_numpy(found.x)
    slope = torch.from_numpy(risk(found.x)[1])
    bend = torch.autograd.functional.hessian(value_at, logs)
    # values of a risk know its place to half their digits only
    step = torch.linalg.lstsq(bend, slope).solution
    if bool((torch.linalg.eigvalsh(bend) > 0).all()) and float(step.abs().max()) < CLOSE:
        logs = logs - step
    a, b = logs.exp().tolist()
    return IsotropicOptimum(float(found.fun), a, b)


def _scan(task: LinearRegression, length: float, scale: float) -> IsotropicOptimum:
    """Least softmax risk over a, each with its best b, up to scores so large that one token is
    read.
    """

    def best(log_a: float) -> tuple[float, float]:
        """Least risk over b, and this b: the risk is a parabola in it."""
        a = torch.full((3,), math.exp(log_a), dtype=torch.float64)
        less, none, more = task.isotropic_risk(a, a.new_tensor([-1.0, 0.0, 1.0]), length).tolist()
        slope, bend = (less - more) / 2, less + more - 2 * none
        return none - slope**2 / (2 * bend), slope / bend

    high = math.log(LARGEST_SCORE_VARIANCE * (1 - 1e-9) / scale) / 2
    x, least, _ = scan_minimum(lambda log_a: best(log_a)[0], np.linspace(high - 8, high, 65), 1e-9)
    return IsotropicOptimum(least, math.exp(x), best(x)[1])
