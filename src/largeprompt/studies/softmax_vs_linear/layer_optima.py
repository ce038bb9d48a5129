"""The best softmax head on in-context linear regression with any covariances, and what it loses on
long prompts.

Everything is about U = diag(A, 0), v = (0, b): formulas (risk.8) to (risk.12) of
docs/mathematics/regression.md.
"""

import dataclasses
import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import Attention, SoftmaxAttention
from largeprompt.devices import sheltered
from largeprompt.training.risk.exact import RiskError
from largeprompt.training.tasks.regression import LinearRegression


@dataclasses.dataclass(frozen=True)
class LongPromptConstants:
    """lim L (R_L - R_∞) at the optimum of each length, for linear attention and for one softmax
    head, and the read-out b there.
    """

    linear: float
    softmax: float
    readout: float

    @property
    def ratio(self) -> float:
        """By how much the excess risk of softmax is larger on long prompts."""
        return self.softmax / self.linear


def long_prompt_constants(task: LinearRegression) -> LongPromptConstants:
    """Excess risks of long prompts, times L, at the best parameters: closed forms, and a search
    over b for softmax.

    Formulas (risk.11-12) of docs/mathematics/regression.md: the ratio is above one for every task,
    by an expansion that is formal.

    Parameters
    ----------
    task
        With any covariances.

    Returns
    -------
    LongPromptConstants
        Of linear attention and of softmax, and its read-out b.

    Examples
    --------
    >>> from largeprompt.studies.softmax_vs_linear.layer_optima import long_prompt_constants
    >>> eye = torch.eye(5, dtype=torch.float64)
    >>> print(f"{long_prompt_constants(lp.LinearRegression(eye, eye / 5, 0.0)).ratio:.4f}")
    3.1926
    """
    from scipy.optimize import minimize_scalar

    validation.instance("task", task, LinearRegression, "a LinearRegression")
    sigma, prior, query = task.covariance, task.prior_covariance, task.query_covariance
    values, vectors = torch.linalg.eigh(query)
    root = vectors * values.clamp_min(0.0).sqrt()  # Σ_q = root root^T
    eigenvalues, basis = torch.linalg.eigh(root.mT @ torch.linalg.solve(sigma, root))
    mu = eigenvalues.clamp_min(0.0).numpy()
    signal = (basis.mT @ root.mT @ prior @ root @ basis).diagonal().numpy()
    spread = float(torch.trace(prior @ sigma)) + task.noise_variance

    def softmax(log_slack: float) -> float:
        beta = 2 * mu[-1] * (1 + math.exp(log_slack))
        kept = 1 - 2 * mu / beta
        return float(np.exp(-np.log(kept).sum() / 2) * (beta * spread + (signal / kept).sum()) / 2)

    centre = math.log(max(float(mu.sum() / (2 * mu[-1])), 0.1))
    found = minimize_scalar(
        softmax, bounds=(centre - 7, centre + 7), method="bounded", options={"xatol": 1e-10}
    )
    readout = math.sqrt(2 * mu[-1] * (1 + math.exp(float(found.x))))
    return LongPromptConstants(
        (spread * float(mu.sum()) + float(signal.sum())) / 2, float(found.fun), readout
    )


@dataclasses.dataclass(frozen=True, eq=False)
class BlockOptimum:
    """Least risk found over A and b, and where."""

    risk: float
    A: Tensor
    b: float


@sheltered
def block_optimum(
    task: LinearRegression, length: float, kind: type[Attention] = SoftmaxAttention
) -> BlockOptimum:
    """Least risk of one head over all d × d matrices A and b, for any covariances.

    A quasi-Newton search with exact risks and gradients in A = Σ^{-1/2} Ã Σ^{-1/2}, from the
    optimum of long prompts Ã = I/b. Where everything is a multiple of the identity
    :func:`isotropic_optimum` needs two numbers.

    Parameters
    ----------
    length
        From 1 to 10^15, or ``math.inf``.
    kind
        SoftmaxAttention or LinearAttention.

    Returns
    -------
    BlockOptimum
        The risk, A and b.

    Examples
    --------
    >>> from largeprompt.studies.softmax_vs_linear.layer_optima import block_optimum
    >>> task = lp.LinearRegression([[2.0, 0.0], [0.0, 0.5]], [[1.0, 0.0], [0.0, 1.0]], 0.1)
    >>> print(f"{block_optimum(task, 100, lp.LinearAttention).risk:.6f}")
    0.087078
    """
    from scipy.optimize import minimize

    validation.instance("task", task, LinearRegression, "a LinearRegression")
    length, d = validation.length("length", length, allow_infinity=True), task.dim
    values, vectors = torch.linalg.eigh(task.covariance)
    whiten = vectors * values.rsqrt() @ vectors.mT  # Σ^{-1/2}
    b = long_prompt_constants(task).readout
    start = np.append((torch.eye(d, dtype=torch.float64) / b).numpy().reshape(-1), b)

    def risk(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        try:
            with torch.enable_grad():
                point = torch.from_numpy(flat).requires_grad_()
                value = task.block_risks(
                    (whiten @ point[:-1].reshape(d, d) @ whiten).unsqueeze(0),
                    point[-1:],
                    [length],
                    kind,
                )
        except RiskError:
            return 1e10, np.zeros_like(flat)  # a step of the line search that went too far
        (gradient,) = torch.autograd.grad(value.sum(), point)
        return float(value.detach()), gradient.numpy()

    found = minimize(risk, start, jac=True, method="BFGS", options={"gtol": 1e-10, "maxiter": 500})
    A = whiten @ torch.from_numpy(found.x[:-1]).reshape(d, d) @ whiten
    return BlockOptimum(float(found.fun), A, float(found.x[-1]))
