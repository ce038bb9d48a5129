"""Averages over contexts: weights that make Sobol points exact for chosen functions, and rules
exact on polynomials.
"""

import torch
from torch import Tensor

from largeprompt.training.risk.exact import Contexts
from largeprompt.training.tasks.regression import LinearRegression

NEWTON_STEPS = 60
POINTS_PER_FUNCTION = 6  # fewer, and the weights that exist are wild ones, or there are none
# of the largest eigenvalue of the Gram matrix: below it functions count as combinations of the
# others
DEPENDENT = 1e-10


def quadratic_points(dim: int) -> tuple[Tensor, Tensor]:
    """2d points ±√d e_i with equal weights: exact up to degree three."""
    eye = dim**0.5 * torch.eye(dim, dtype=torch.float64)
    return torch.cat([eye, -eye]), torch.full((2 * dim,), 1 / (2 * dim), dtype=torch.float64)


def quartic_points(dim: int) -> tuple[Tensor, Tensor]:
    """2d² + 1 points, exact up to degree five: 0, ±√(d+2) e_i and √((d+2)/2)(±e_i ± e_j).

    Weights 2/(d+2), (4-d)/(2(d+2)²) and 1/(d+2)²; some are negative for d > 4, so that the rule is
    for polynomials alone.
    """
    eye = torch.eye(dim, dtype=torch.float64)
    axes = (dim + 2) ** 0.5 * eye
    i, j = torch.triu_indices(dim, dim, 1)
    pairs = [(a * eye[i] + b * eye[j]) * ((dim + 2) / 2) ** 0.5 for a in (1, -1) for b in (1, -1)]
    points = torch.cat([torch.zeros(1, dim, dtype=torch.float64), axes, -axes, *pairs])
    weights = torch.full((len(points),), 1 / (dim + 2) ** 2, dtype=torch.float64)
    weights[0], weights[1 : 2 * dim + 1] = 2 / (dim + 2), (4 - dim) / (2 * (dim + 2) ** 2)
    return points, weights


def calibration(task: LinearRegression, contexts: Contexts) -> Tensor:
    """x_i x_j times 1, w_k, w_k w_l, S w_k and S², S = w^TΣw, less their means: what an
    infinite prompt's risk is made of.
    """
    d, sigma, prior = task.dim, task.covariance, task.prior_covariance
    x, w = contexts.query[:, :d], torch.linalg.solve(sigma, contexts.covariance[:, :d, d].mT).mT
    i, j = torch.triu_indices(d, d)
    mean, square = task._size_moments()
    size = ((w @ sigma * w).sum(-1) / mean.clamp_min(1e-300)).unsqueeze(-1)
    one, none = torch.ones_like(size), w.new_zeros(d)
    inner = torch.cat([one, w, w[:, i] * w[:, j], size * w, size**2], -1)
    expected = torch.cat(
        [one[0], none, prior[i, j], none, (square / mean.square().clamp_min(1e-300)).reshape(1)]
    )
    values = (x[:, i] * x[:, j]).unsqueeze(-1) * inner.unsqueeze(-2)
    return (values - task.query_covariance[i, j].unsqueeze(-1) * expected).reshape(len(x), -1)


def calibrated_weights(functions: Tensor, base: Tensor) -> Tensor | None:
    """Positive weights, summing to one, under which every function averages to zero, and as near to
    ``base`` as that allows.

    Nearest in relative entropy, w_i ∝ base_i exp(λ·φ_i) with λ the minimum of the convex log Σ
    base_i exp(λ·φ_i), found by Newton's method. Averages of whatever resembles the functions
    improve with them. Being positive, the weights keep an average of nonnegative numbers
    nonnegative, which a control variate would not.

    Parameters
    ----------
    functions
        Values φ at the points, less their true means, shape (n, k).
    base
        Positive weights that sum to one, shape (n,).

    Returns
    -------
    Tensor or None
        Shape (n,). None where k is zero or more than a sixth of n, or where no positive weights do
        it.
    """
    count, size = functions.shape
    if not size or size * POINTS_PER_FUNCTION > count:
        return None
    scaled = functions / functions.square().mean(0).sqrt().clamp_min(1e-300)
    values, vectors = torch.linalg.eigh(scaled.mT @ (base.unsqueeze(-1) * scaled))
    kept = values > DEPENDENT * values[-1]
    scaled = scaled @ (vectors[:, kept] / values[kept].sqrt())  # independent, of unit mean square
    offset, dual = base.log(), functions.new_zeros(int(kept.sum()))
    value = torch.logsumexp(offset, 0)
    for _ in range(NEWTON_STEPS):
        weights = torch.softmax(offset + scaled @ dual, 0)
        slope = weights @ scaled
        if float(slope.abs().max()) < 1e-14:
            return weights
        curvature = (scaled * weights.unsqueeze(-1)).mT @ scaled - slope.unsqueeze(-1) * slope
        step = torch.linalg.lstsq(curvature, slope.unsqueeze(-1), driver="gelsd").solution.squeeze(
            -1
        )
        share = 1.0
        while share > 1e-6:
            trial = torch.logsumexp(offset + scaled @ (dual - share * step), 0)
            if float(trial) <= float(value) + 1e-15 * abs(float(value)):
                break
            share /= 2
        else:
            break
        dual, value = dual - share * step, trial
    weights = torch.softmax(offset + scaled @ dual, 0)
    return weights if float((weights @ scaled).abs().max()) < 1e-11 else None
