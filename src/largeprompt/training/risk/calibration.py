"""Weights of a quasi-random average that make it exact for chosen functions."""

from __future__ import annotations

import torch
from torch import Tensor

NEWTON_STEPS = 60
POINTS_PER_FUNCTION = 6  # fewer, and the weights that exist are wild ones, or there are none
DEPENDENT = 1e-10  # of the largest eigenvalue of the Gram matrix: below it functions count as combinations of the others


def calibrated_weights(functions: Tensor, base: Tensor) -> Tensor | None:
    """Positive weights, summing to one, under which every function averages to zero, and as near to ``base`` as that allows.

    Nearest in relative entropy, w_i ∝ base_i exp(λ·φ_i) with λ the minimum of the convex log Σ base_i exp(λ·φ_i), found by
    Newton's method. Averages of whatever resembles the functions improve with them. Being positive, the weights keep an average of
    nonnegative numbers nonnegative, which a control variate would not.

    Parameters
    ----------
    functions
        Values φ at the points, less their true means, shape (n, k).
    base
        Positive weights that sum to one, shape (n,).

    Returns
    -------
    Tensor or None
        Shape (n,). None where k is zero or more than a sixth of n, or where no positive weights do it.
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
        step = torch.linalg.lstsq(curvature, slope.unsqueeze(-1), driver="gelsd").solution.squeeze(-1)
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
