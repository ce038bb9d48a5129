"""The part of a head's affine error that Gaussian keys and values of the same moments and the same number would have anyway."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from largeprompt.law.readout import own_moment_error

Array = NDArray[np.float64]
LEAST, MOST = 1e-3, 500.0  # standard deviations of the scores between which the law is tabulated
PER_LENGTH = 48


def expected_affine_error(tokens: Array, score_variance: Array, tilt: Array, value_spread: Array) -> Array:
    """E‖T - T̂‖² of the exact finite-length law: along ‖e‖² + across (tr Γ_v - ‖e‖²), e = Γ_vk u/σ (see law.readout).

    Parameters
    ----------
    tokens, score_variance
        Number of keys and variance σ² of their scores.
    tilt, value_spread
        ‖Cov(v, s)‖² and tr Cov(v). All arguments broadcast.

    Notes
    -----
    The two coefficients are interpolated in ln σ, for each number of keys; the interpolation is checked to one part in a thousand.
    """
    tokens, score_variance, tilt, value_spread = np.broadcast_arrays(tokens, score_variance, tilt, value_spread)
    result = np.full(tokens.shape, np.nan)
    known = np.isfinite(score_variance) & (tokens >= 1)
    for length in np.unique(tokens[known]):
        here = known & (tokens == length)
        along, across = _coefficients(int(length), score_variance[here])
        part = tilt[here] / np.maximum(score_variance[here], LEAST**2 * 1e-6)  # ‖e‖²
        part = np.minimum(part, value_spread[here])
        result[here] = along * part + across * (value_spread[here] - part)
    return result


def needed_length(score_variance: Array, tilt: Array, value_spread: Array, tolerance: float) -> Array:
    """Smallest power of two from 16 on at which the exact law expects an affine error of at most ``tolerance``; inf beyond 2^49.

    ``tilt`` and ``value_spread`` are ‖Cov(v, s)‖² and tr Cov(v) in units of the squared output. All arguments broadcast.
    """
    score_variance, tilt, value_spread = np.broadcast_arrays(score_variance, tilt, value_spread)
    result = np.full(score_variance.shape, np.nan)
    open_still = np.isfinite(score_variance) & np.isfinite(tilt) & np.isfinite(value_spread)
    result[open_still] = np.inf
    for power in range(4, 50):
        if not open_still.any():
            break
        length = np.full(int(open_still.sum()), float(2**power))
        error = expected_affine_error(length, score_variance[open_still], tilt[open_still], value_spread[open_still])
        reached = np.zeros_like(open_still)
        reached[open_still] = error <= tolerance**2
        result[reached] = float(2**power)
        open_still = open_still & ~reached
    return result


def _coefficients(length: int, variance: Array) -> tuple[Array, Array]:
    from scipy.interpolate import PchipInterpolator

    scale = np.clip(np.sqrt(np.maximum(variance, 0.0)), LEAST, MOST)
    if length == 1:
        return np.zeros_like(scale), np.zeros_like(scale)
    grid = np.geomspace(max(LEAST, 0.9 * scale.min()), min(MOST, 1.1 * scale.max()), PER_LENGTH)
    values = torch.stack(own_moment_error(length, torch.from_numpy(grid**2))).numpy()
    # both start like σ⁴: the ratio to it (with saturation) is smooth
    smooth = np.log(np.maximum(values, 1e-300))
    found = [np.exp(PchipInterpolator(np.log(grid), row)(np.log(scale))) for row in smooth]
    return found[0], found[1]
