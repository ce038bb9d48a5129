"""Weights of a quasi-random average that make it exact for chosen functions."""

from __future__ import annotations

import torch
from torch import Tensor

NEWTON_STEPS = 60
POINTS_PER_FUNCTION = 6  # fewer, and the weights that exist are wild ones, or there are none


def calibrated_weights(functions: Tensor) -> Tensor:
    """Positive weights, summing to one, under which every function averages to zero, and no more uneven than that needs.

    Among all such weights the ones nearest to uniform in relative entropy, w_i ∝ exp(λ·φ_i) with λ the minimum of the convex
    log Σ exp(λ·φ_i), found by Newton's method. Averages of whatever resembles the functions improve with them. Being positive,
    the weights keep an average of nonnegative numbers nonnegative, which a control variate would not.

    Parameters
    ----------
    functions
        Values φ at the points, less their true means, shape (n, k).

    Returns
    -------
    Tensor
        Shape (n,). Uniform weights where k is more than a sixth of n, or where no weights do it.
    """
    count, size = functions.shape
    uniform = functions.new_full((count,), 1 / count)
    if not size or size * POINTS_PER_FUNCTION > count:
        return uniform
    scaled = functions / functions.square().mean(0).sqrt().clamp_min(1e-300)
    dual = functions.new_zeros(size)
    value = torch.logsumexp(scaled @ dual, 0)
    for _ in range(NEWTON_STEPS):
        weights = torch.softmax(scaled @ dual, 0)
        slope = weights @ scaled
        if float(slope.abs().max()) < 1e-14:
            return weights
        curvature = (scaled * weights.unsqueeze(-1)).mT @ scaled - slope.unsqueeze(-1) * slope
        step = torch.linalg.lstsq(curvature, slope.unsqueeze(-1), driver="gelsd").solution.squeeze(-1)
        share = 1.0
        while share > 1e-6:
            trial = torch.logsumexp(scaled @ (dual - share * step), 0)
            if float(trial) <= float(value) + 1e-15 * abs(float(value)):
                break
            share /= 2
        else:
            break
        dual, value = dual - share * step, trial
    weights = torch.softmax(scaled @ dual, 0)
    return weights if float((weights @ scaled).abs().max()) < 1e-11 else uniform
