"""The part of a head's affine error that Gaussian keys and values of the same moments and the same number would have anyway."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from largeprompt.law.readout import own_moment_error

Array = NDArray[np.float64]
LEAST, MOST = 0.03, 500.0  # standard deviations of the scores between which the law is tabulated; both coefficients start like σ⁴
PER_LENGTH = 48
PER_OCTAVE, EVERY = 3, 12  # lengths that are tabulated: all up to 12, then three in every octave


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
    The two coefficients are interpolated in ln σ, and in ln L where there are many lengths; both to one part in a thousand.
    """
    tokens, score_variance, tilt, value_spread = np.broadcast_arrays(tokens, score_variance, tilt, value_spread)
    result = np.full(tokens.shape, np.nan)
    known = np.isfinite(score_variance) & (tokens >= 1)
    if not known.any():
        return result
    q = np.maximum(score_variance[known], 0.0)
    along, across = _coefficients(tokens[known], np.log(np.clip(np.sqrt(q), LEAST, MOST)))
    spread = value_spread[known]
    part = np.minimum(tilt[known] / np.maximum(q, 1e-30), spread)  # ‖e‖²
    small = np.minimum(q / LEAST**2, 1.0) ** 2  # below the table
    result[known] = small * (along * part + across * (spread - part))
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


def _coefficients(tokens: Array, logs: Array) -> tuple[Array, Array]:
    """Both coefficients of the law at pairs of a number of keys and ln σ: cubic splines of their logarithms."""
    from scipy.interpolate import CubicSpline

    lengths, which = np.unique(tokens, return_inverse=True)
    grid = np.linspace(logs.min() - 0.1, logs.max() + 0.1, PER_LENGTH)
    variance = torch.from_numpy(np.exp(2 * grid))
    knots = _knots(lengths)
    values = np.stack([torch.stack(own_moment_error(knot, variance)).numpy() for knot in knots])  # (length, coefficient, σ)
    table = np.log(np.maximum(values, 1e-300))  # one token has no error
    if len(knots) < len(lengths):
        table = CubicSpline(np.log(knots), table)(np.log(lengths))
    cell = np.clip(np.searchsorted(grid, logs) - 1, 0, PER_LENGTH - 2)
    pieces = CubicSpline(grid, table, axis=-1).c[:, cell, which]  # (power, pair, coefficient)
    found = np.exp(np.polyval(pieces, (logs - grid[cell])[:, None]))
    return found[:, 0], found[:, 1]


def _knots(lengths: Array) -> list[float]:
    """The lengths themselves where they are few; else those up to 12 and a few in every octave, the longest among them."""
    octaves = np.log2(lengths[-1] / EVERY)
    if octaves <= 0 or len(lengths) <= EVERY + PER_OCTAVE * octaves:
        return [float(length) for length in lengths]
    rest = np.geomspace(EVERY, lengths[-1], int(np.ceil(PER_OCTAVE * octaves)) + 1)
    return [float(length) for length in np.unique([*lengths[lengths < EVERY], *rest.round()])]
