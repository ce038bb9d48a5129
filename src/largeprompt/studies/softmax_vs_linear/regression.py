"""In-context regression: one softmax head, a pair of heads, and linear attention at their best."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
import xarray as xr

from largeprompt.runs.study import Progress
from largeprompt.studies.covariances import F, covariance
from largeprompt.studies.softmax_vs_linear.lattice import Array, Lattice
from largeprompt.training import LinearRegression, linear_optimum
from largeprompt.training.risk.scores import RiskError

if TYPE_CHECKING:
    from largeprompt.studies.softmax_vs_linear.study import SoftmaxVsLinearConfig

Spectrum = Literal["identity", "toeplitz", "condition 1e4", "queries near a line"]


def lattice(length: float) -> Lattice:
    """Moments of one head; short prompts may need steep tilts."""
    return Lattice.of(length, 40.0 if length <= 10 else 12.0)


def linear_excess(dim: int, noise: float, length: float) -> float:
    """Least excess c/(1 + c) of linear attention: (risk.9) of docs/mathematics/regression.md."""
    c = ((1 + noise) * dim + 1) / length
    return c / (1 + c)


def table(length: float, dims: Any, noises: Any, excess: Any) -> Array:
    """``excess(dim, noise, length)`` for all dimensions and noises."""
    return np.array([[excess(d, s2, length) for s2 in noises] for d in dims])


def one_head(config: SoftmaxVsLinearConfig, length: int, progress: Progress) -> xr.Dataset:
    """Best head and best linear attention at one length, identity covariances."""
    progress(f"one head, L = {length:g}")
    dims, noises, moments = config.dims, config.noises, lattice(length)
    softmax = table(length, dims, noises, lambda d, s2, _: moments.least_excess(d, s2))
    limit = [[long_prompt_ratio(standard_task(d, s2)) for s2 in noises] for d in dims]
    grid = ("dim", "noise")
    return xr.Dataset(
        {
            "softmax_best": (grid, softmax),
            "linear_best": (grid, table(length, dims, noises, linear_excess)),
        },
        coords={
            "dim": list(dims),
            "noise": list(noises),
            "limit_ratio": (grid, limit),
            "noise_limit": ("dim", [(1 + 2 / d) ** (1 + d / 2) for d in dims]),
        },
    )


def pair(config: SoftmaxVsLinearConfig, length: int, progress: Progress) -> xr.Dataset:
    """Best pair of heads with opposite tilts and read-outs at one length.

    As its tilts vanish a pair is linear attention over L - 1 tokens.
    """
    progress(f"pair of heads, L = {length:g}")
    largest = 12.0 if length <= 3 else config.largest_scale
    dims, noises = config.pair_dims, config.pair_noises
    moments = Lattice.of(length, largest, pair=True)
    best = table(length, dims, noises, lambda d, s2, _: moments.least_excess(d, s2))
    grid = ("pair_dim", "pair_noise")
    return xr.Dataset(
        {
            "pair_best": (grid, best),
            "pair_linear": (grid, table(length, dims, noises, linear_excess)),
            "pair_vanishing": (grid, table(length - 1, dims, noises, linear_excess)),
        },
        coords={"pair_dim": list(dims), "pair_noise": list(noises)},
    )


def standard_task(dim: int, noise: float, spectrum: Spectrum = "identity") -> LinearRegression:
    """In-context regression with W a multiple of the identity and tr WΣ = 1."""
    if spectrum == "queries near a line":
        sigma, query = torch.eye(dim, dtype=F), torch.full((dim,), 0.01, dtype=F)
        query[0] = 1.0
        return LinearRegression(sigma, sigma / dim, noise, torch.diag(query))
    sigma = covariance(spectrum, dim)
    return LinearRegression(sigma, torch.eye(dim, dtype=F) / float(torch.trace(sigma)), noise)


def long_prompts(task: LinearRegression) -> tuple[float, float, float]:
    """lim L (R_L - R_∞) of the best linear attention and of the best head, and the head's read-out.

    Formulas (risk.11-12) of docs/mathematics/regression.md, by an expansion that is formal.
    """
    from scipy.optimize import minimize_scalar

    sigma, prior, query = task.covariance, task.prior_covariance, task.query_covariance
    values, vectors = torch.linalg.eigh(query)
    root = vectors * values.clamp_min(0.0).sqrt()  # Σ_q = root rootᵀ
    eigenvalues, basis = torch.linalg.eigh(root.mT @ torch.linalg.solve(sigma, root))
    mu = eigenvalues.clamp_min(0.0).numpy()
    signal = (basis.mT @ root.mT @ prior @ root @ basis).diagonal().numpy()
    spread = float(torch.trace(prior @ sigma)) + task.noise_variance

    def softmax(log_slack: float) -> float:
        beta = 2 * mu[-1] * (1 + math.exp(log_slack))
        kept = 1 - 2 * mu / beta
        return float(np.exp(-np.log(kept).sum() / 2) * (beta * spread + (signal / kept).sum()) / 2)

    center = math.log(max(float(mu.sum() / (2 * mu[-1])), 0.1))
    ends = (center - 7, center + 7)
    found = minimize_scalar(softmax, bounds=ends, method="bounded", options={"xatol": 1e-10})
    linear = (spread * float(mu.sum()) + float(signal.sum())) / 2
    return linear, float(found.fun), math.sqrt(2 * mu[-1] * (1 + math.exp(float(found.x))))


def long_prompt_ratio(task: LinearRegression) -> float:
    """By how much the excess risk of one softmax head is larger on long prompts."""
    linear, softmax, _ = long_prompts(task)
    return softmax / linear


def block_risk(task: LinearRegression, length: float) -> float:
    """Least risk of one softmax head over all d × d matrices A and b, for any covariances.

    A quasi-Newton search in A = Σ^{-1/2} Ã Σ^{-1/2} on exact risks, from the optimum of long
    prompts Ã = I/b.
    """
    from scipy.optimize import minimize

    values, vectors = torch.linalg.eigh(task.covariance)
    whiten = vectors * values.rsqrt() @ vectors.mT  # Σ^{-1/2}
    d, (*_, b) = task.dim, long_prompts(task)
    start = np.append((torch.eye(d, dtype=F) / b).numpy().reshape(-1), b)

    def risk(flat: Array) -> tuple[float, Array]:
        try:
            with torch.enable_grad():
                point = torch.from_numpy(flat).requires_grad_()
                A = whiten @ point[:-1].reshape(d, d) @ whiten
                value = task.block_risks(A.unsqueeze(0), point[-1:], [length])
        except RiskError:
            return 1e10, np.zeros_like(flat)  # a step of the line search that went too far
        (gradient,) = torch.autograd.grad(value.sum(), point)
        return float(value.detach()), gradient.numpy()

    found = minimize(risk, start, jac=True, method="BFGS", options={"gtol": 1e-10, "maxiter": 500})
    return float(found.fun)


def other_spectra(
    config: SoftmaxVsLinearConfig, spectrum: Spectrum, progress: Progress
) -> xr.Dataset:
    """Other covariances of inputs or queries: all d × d matrices A are searched."""
    lengths, noises = config.spectrum_lengths, config.spectrum_noises
    tasks = [standard_task(config.spectrum_dim, s2, spectrum) for s2 in noises]
    best = np.empty((2, len(noises), len(lengths)))
    for j, task in enumerate(tasks):
        signal = float(torch.trace(task.prior_covariance @ task.query_covariance))
        for k, length in enumerate(lengths):
            progress(f"{spectrum}: L = {length:g}")
            risks = block_risk(task, length), linear_optimum(task, length).risk
            best[:, j, k] = [(2 * risk - task.noise_variance) / signal for risk in risks]
    grid = ("spectrum_noise", "spectrum_length")
    return xr.Dataset(
        {
            "spectrum_softmax": (grid, best[0]),
            "spectrum_linear": (grid, best[1]),
            "spectrum_limit": ("spectrum_noise", [long_prompt_ratio(task) for task in tasks]),
        },
        coords={"spectrum_noise": list(noises), "spectrum_length": list(lengths)},
    )
