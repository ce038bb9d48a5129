"""The least risk of any predictor on in-context linear regression: ridge regression with the right
penalty.
"""

import math
from collections.abc import Callable

import torch
from scipy.special import gammaincinv, ndtr
from torch import Tensor

from largeprompt.training.risk.average import SobolAverage
from largeprompt.training.tasks.task import SCRAMBLES, RiskEstimate

RELATIVE_ERROR = 1e-4  # standard error of the risk that is asked for
MOST_NUMBERS = 2**27  # drawn for it: seconds


def ridge_risk(design: Tensor, left: Tensor, noise: float, length: float) -> RiskEstimate:
    """½ (s² + tr left E(I + M^T S M/s²)^{-1}), S the Wishart matrix of L standard normal rows:
    formula (risk.7) of docs/mathematics/regression.md.

    Exact in one dimension; else an average over Bartlett factors at Sobol points, at a cost that
    does not depend on L. The standard error is below 1e-4 of the risk up to 40 dimensions or so.
    """
    dim = len(design)
    if math.isinf(length) or (noise == 0 and length >= dim):
        return RiskEstimate(noise / 2, 0.0)
    if dim == 1:
        share = mean_shrinkage(float(design.square()) / noise, length)
        return RiskEstimate((noise + float(left) * share) / 2, 0.0)
    for points in (2**10, 2**12, 2**14, 2**16):
        values = []
        for seed in range(SCRAMBLES):
            rows = _factors(dim, length, SobolAverage(points, seed)) @ design
            kept = (left * _posterior(rows, noise)).sum((-2, -1)).mean()
            values.append((noise + float(kept)) / 2)
        found = RiskEstimate.of(values)
        cost = 4 * points * SCRAMBLES * dim**2  # of the next average
        if found.standard_error <= RELATIVE_ERROR * found or cost > MOST_NUMBERS:
            break
    return found


def drawn_ridge_risk(
    draw: Callable[[int], Tensor], left: Tensor, noise: float, numbers: int
) -> RiskEstimate:
    """The risk where rows have another law: a mean over designs (n, L, d) that ``draw`` (n) gives,
    ``numbers`` in each.
    """
    values, count = torch.empty(0, dtype=torch.float64), max(1, MOST_NUMBERS // (128 * numbers))
    while True:
        kept = (left * _posterior(draw(count), noise)).sum((-2, -1))
        values = torch.cat([values, (noise + kept) / 2])
        error = float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else math.inf
        mean = float(values.mean())
        if error <= RELATIVE_ERROR * mean or len(values) * numbers >= MOST_NUMBERS:
            return RiskEstimate(mean, error)


def mean_shrinkage(strength: float, length: float) -> float:
    """E 1/(1 + c χ²_L) = ∫ e^{-t} (1 + 2ct)^{-L/2} dt, by the trapezoid rule in log t."""
    smallest = -math.log(max(1.0, strength * length))
    x = torch.arange(smallest - 40, 5.0, 0.1, dtype=torch.float64)
    exponent = x - x.exp() - length / 2 * torch.log1p(2 * strength * x.exp())
    return 0.1 * float(exponent.exp().sum())


def _factors(dim: int, length: float, average: SobolAverage) -> Tensor:
    """F with F^T F = S in law: the rows themselves where they are few, else Bartlett's factor."""
    if length < dim:
        return average.normal(int(length) * dim).reshape(-1, int(length), dim)
    standard = average.normal(dim * (dim + 1) // 2)
    degrees = length - torch.arange(dim, dtype=torch.float64)
    share = ndtr(standard[:, :dim].numpy())
    chi = torch.from_numpy(2 * gammaincinv(degrees.numpy() / 2, share)).sqrt()
    factor = torch.diag_embed(chi)
    i, j = torch.tril_indices(dim, dim, -1)
    factor[:, i, j] = standard[:, dim:]
    return factor.mT


def _posterior(rows: Tensor, noise: float) -> Tensor:
    """Posterior covariance of v given y = rows v + noise, v standard normal."""
    eye = torch.eye(rows.shape[-1], dtype=rows.dtype)
    if noise == 0:
        known: Tensor = torch.linalg.pinv(rows) @ rows
        return eye - known
    inverse: Tensor = torch.linalg.inv(eye + rows.mT @ rows / noise)
    return inverse
