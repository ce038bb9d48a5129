"""The best that one layer can do on in-context linear regression, softmax or linear, for any covariances.

Everything is about U = diag(A, 0), v = (0, b). With V2 = tr WΣ + s², the mean square of y:

- linear attention sees P = bA alone, and its risk is a quadratic form in it, least at P = ((1 + 1/L) WΣ + (V2/L) I)^{-1} W;
- softmax attention over long prompts needs bΣA = I to leading order, which leaves b free; with q = x_q^TΣ^{-1}x_q/b²,

      2L (R_L - R_∞) -> E e^q (b² V2 + x_q^T W x_q)   against   V2 tr Σ^{-1}Σ_q + tr WΣ_q   for linear attention.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.training.risk.derivatives import layer_derivatives
from largeprompt.training.risk.exact import RiskError, context_risk
from largeprompt.training.tasks.regression import LinearRegression


@dataclasses.dataclass(frozen=True, eq=False)
class LinearOptimum:
    """Least risk of linear attention, and the matrix P = bA that attains it."""

    risk: float
    matrix: Tensor


def linear_optimum(task: LinearRegression, length: Any = math.inf) -> LinearOptimum:
    """Least risk of linear attention at a length, in closed form for any Σ, Σ_q, W and noise.

    2R = s² + tr WΣ_q - tr Σ_q WΣP at P = ((1 + 1/L) WΣ + (V2/L) I)^{-1} W. For multiples of the identity with tr WΣ = 1 the excess
    over s²/2 is ½ c/(1 + c), c = ((1 + s²)d + 1)/L.

    Examples
    --------
    >>> task = lp.LinearRegression([[2.0, 0.0], [0.0, 0.5]], [[1.0, 0.0], [0.0, 1.0]], 0.1)
    >>> print(f"{lp.linear_optimum(task, 100).risk:.6f} {lp.linear_optimum(task).risk:.6f}")
    0.087078 0.050000
    """
    length = validation.length("length", length, allow_infinity=True)
    short = 0.0 if math.isinf(length) else 1 / length
    sigma, prior, query = task.covariance, task.prior_covariance, task.query_covariance
    assert isinstance(query, Tensor)  # made one by the task
    read = prior @ sigma
    spread = torch.trace(read) + task.noise_variance
    normal = (1 + short) * read + short * spread * torch.eye(task.dim, dtype=sigma.dtype)
    matrix = torch.linalg.lstsq(normal, prior, driver="gelsd").solution  # a singular W leaves directions without meaning
    twice = task.noise_variance + torch.trace(prior @ query) - torch.trace(query @ read @ matrix)
    return LinearOptimum(float(twice) / 2, matrix)


@dataclasses.dataclass(frozen=True)
class LongPromptConstants:
    """lim L (R_L - R_∞) at the optimum of each length, for linear attention and for one softmax head, and the read-out b there."""

    linear: float
    softmax: float
    readout: float

    @property
    def ratio(self) -> float:
        """By how much the excess risk of softmax is larger on long prompts."""
        return self.softmax / self.linear


def long_prompt_constants(task: LinearRegression) -> LongPromptConstants:
    """Excess risks of long prompts, times L, at the best parameters: closed forms, and a search over b for softmax.

    With x_q ~ N(0, Σ_q), M = Σ_q^{1/2} Σ^{-1} Σ_q^{1/2} and β = b² > 2‖M‖,

        softmax: min_β det(I - 2M/β)^{-1/2} (β V2 + tr Σ_q^{1/2} W Σ_q^{1/2} (I - 2M/β)^{-1})/2,   linear: (V2 tr M + tr WΣ_q)/2.

    Since det(I - 2M/β)^{-1/2} >= e^{tr M/β} the ratio is at least (e + ρ)/(1 + ρ), ρ = tr WΣ_q/(V2 tr M): above one for every task.
    For Σ_q = Σ it depends on d and tr WΣ/V2 alone, whatever the spectrum; it is (1 + 2/d)^{1+d/2} where noise dominates.

    Examples
    --------
    >>> eye = torch.eye(5, dtype=torch.float64)
    >>> print(f"{lp.long_prompt_constants(lp.LinearRegression(eye, eye / 5, 0.0)).ratio:.4f}")
    3.1926
    """
    from scipy.optimize import minimize_scalar

    if not isinstance(task, LinearRegression):
        raise InvalidArgumentError("task", repr(task), "a LinearRegression")
    sigma, prior, query = task.covariance, task.prior_covariance, task.query_covariance
    assert isinstance(query, Tensor)  # made one by the task
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
    found = minimize_scalar(softmax, bounds=(centre - 7, centre + 7), method="bounded", options={"xatol": 1e-10})
    readout = math.sqrt(2 * mu[-1] * (1 + math.exp(float(found.x))))
    return LongPromptConstants((spread * float(mu.sum()) + float(signal.sum())) / 2, float(found.fun), readout)


@dataclasses.dataclass(frozen=True, eq=False)
class BlockOptimum:
    """Least risk found over A and b, and where."""

    risk: float
    A: Tensor
    b: float


def block_optimum(
    task: LinearRegression, length: Any, *, softmax: bool = True, directions: int = 256, radii: int = 24, seed: int = 0
) -> BlockOptimum:
    """Least risk of one head over all d × d matrices A and b, for any covariances.

    A quasi-Newton search with exact gradients in A = Σ^{-1/2} Ã Σ^{-1/2}, from the optimum of long prompts Ã = I/b. Queries are
    averaged by a Gauss rule in their length and Sobol directions: the score variance of long prompts' optimum does not depend on
    the direction, so that few directions do. Where everything is a multiple of the identity :class:`HeadLattice` needs none.

    Examples
    --------
    >>> task = lp.LinearRegression([[2.0, 0.0], [0.0, 0.5]], [[1.0, 0.0], [0.0, 1.0]], 0.1)
    >>> print(f"{lp.block_optimum(task, 100, softmax=False).risk:.6f}")
    0.087078
    """
    from scipy.optimize import minimize

    length, d = validation.length("length", length, allow_infinity=True), task.dim
    x, weight = radial_queries(task, directions, radii, seed)
    contexts = dataclasses.replace(task.block_contexts(x), weight=weight)
    values, vectors = torch.linalg.eigh(task.covariance)
    whiten = vectors * values.rsqrt() @ vectors.mT  # Σ^{-1/2}
    b = long_prompt_constants(task).readout
    start = np.append((torch.eye(d, dtype=x.dtype) / b).numpy().reshape(-1), b)

    def risk(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        point = torch.from_numpy(flat).requires_grad_()
        U, V = task.block_layer((whiten @ point[:-1].reshape(d, d) @ whiten).unsqueeze(0), point[-1:])
        try:
            found = layer_derivatives(U.detach(), V.detach(), contexts, (length,), softmax, limit=True, hessian=False)
        except RiskError:
            return 1e10, np.zeros_like(flat)  # a step of the line search that went too far
        (gradient,) = torch.autograd.grad((U, V), point, (found.in_u, found.in_v))
        return float(found.value[0]), gradient.numpy()

    found = minimize(risk, start, jac=True, method="BFGS", options={"gtol": 1e-10, "maxiter": 500})
    A = whiten @ torch.from_numpy(found.x[:-1]).reshape(d, d) @ whiten
    return BlockOptimum(float(found.fun), A, float(found.x[-1]))


def radial_risk(
    task: LinearRegression,
    A: Tensor,
    b: Tensor,
    length: Any,
    softmax: bool,
    *,
    directions: int = 256,
    radii: int = 24,
    seed: int = 0,
) -> Tensor:
    """Risk at one A (d, d) and b, averaged over the queries of :func:`block_optimum`."""
    x, weight = radial_queries(task, directions, radii, seed)
    contexts = dataclasses.replace(task.block_contexts(x), weight=weight)
    length = validation.length("length", length, allow_infinity=True)
    return context_risk(*task.block_layer(A.unsqueeze(0), b.reshape(1)), contexts, (length,), softmax)[0]


def radial_queries(task: LinearRegression, directions: int, radii: int, seed: int) -> tuple[Tensor, Tensor]:
    """Queries (n, d) and weights (n,): a Gauss rule for the chi-square law of ‖Σ_q^{-1/2}x‖² times Sobol directions, whitened."""
    from scipy.special import roots_genlaguerre

    normal = task.block_queries(directions, seed) if task.dim > 1 else task.quadratic_queries()
    values, vectors = torch.linalg.eigh(task.query_covariance)
    root = vectors * values.clamp_min(0.0).sqrt()
    white = torch.linalg.lstsq(root, normal.mT).solution.mT
    unit = white / white.norm(dim=-1, keepdim=True)
    share = torch.full((len(unit),), 1 / len(unit), dtype=torch.float64)
    second = torch.einsum("n,ni,nj->ij", share, unit, unit) * task.dim
    unit = unit @ torch.linalg.inv(torch.linalg.cholesky(second)).mT  # E θθ^T = I/d exactly, lengths one to second order
    half, mass = roots_genlaguerre(radii, task.dim / 2 - 1)
    radius, density = torch.from_numpy(np.sqrt(2 * half)), torch.from_numpy(mass / mass.sum())
    points = radius[:, None, None] * (unit @ root.mT)
    return points.reshape(-1, task.dim), (density[:, None] * share).reshape(-1)
