"""The part of a head's affine error that Gaussian keys and values of the same moments and the same
number would have anyway.
"""

import functools

import numpy as np
import scipy.special
import torch
from numpy.typing import NDArray

from largeprompt.audit.own_moments import own_moment_error

Array = NDArray[np.float64]
# standard deviations of the scores between which the law is tabulated; both coefficients start like
# σ⁴
LEAST, MOST = 0.03, 500.0
SPACING, BLOCK = 0.14, 8  # steps of ln σ in the table, and how many of them are made at a time
COARSEST = (0.1, 1.25)  # least σ, and steps of σ, for which prompts are drawn
DRAWN = 2**19  # tokens for each of them
# lengths that are tabulated where there are many: all up to 12, then three in every octave and the
# last
PER_OCTAVE, EVERY = 3, 12


def expected_affine_error(
    tokens: Array, score_variance: Array, tilt: Array, value_spread: Array
) -> Array:
    """E‖T - T̂‖² of the exact finite-length law: along ‖e‖² + across (tr Γ_v - ‖e‖²), e = Γ_vk u/σ
    (see own_moments).

    The arguments, which broadcast, are taken over the keys that a query sees: their number, the
    variance σ² of their scores s, ‖Cov(v, s)‖² and tr Cov(v). The two coefficients are interpolated
    in ln σ, and in ln L where there are many lengths; both to one part in a thousand.
    """
    tokens, score_variance, tilt, value_spread = np.broadcast_arrays(
        tokens, score_variance, tilt, value_spread
    )
    finite = np.isfinite(score_variance)
    known = finite & (tokens > 1)
    result = np.where(finite & (tokens == 1), 0.0, np.nan)
    if not known.any():
        return result
    q = np.maximum(score_variance[known], 0.0)
    along, across = _coefficients(tokens[known], np.log(np.clip(np.sqrt(q), LEAST, MOST)))
    spread = value_spread[known]
    part = np.minimum(tilt[known] / np.maximum(q, 1e-30), spread)  # ‖e‖²
    small = np.minimum(q / LEAST**2, 1.0) ** 2  # below the table
    result[known] = small * (along * part + across * (spread - part))
    return result


def typical_affine_error(
    tokens: Array, score_variance: Array, tilt: Array, value_spread: Array
) -> Array:
    """Median of ‖T - T̂‖ by the same law, to stand beside medians over queries: the root mean
    square is up to twice as large.

    The ratio of median and root mean square comes from drawn prompts (fixed seed; a few per cent up
    to 1,000 tokens, 10 to 20 % at 8,192): given the scores, the error is A²‖e‖² + B(tr Γ_v - ‖e‖²)
    with A = S - ξ̄ - σV̂ and B = Σ (w - (1 + σ(ξ - ξ̄))/L)², the values having many coordinates
    across e. The arguments are those of :func:`expected_affine_error`.
    """
    tokens, score_variance, tilt, value_spread = np.broadcast_arrays(
        tokens, score_variance, tilt, value_spread
    )
    result = np.sqrt(expected_affine_error(tokens, score_variance, tilt, value_spread))
    sigma = np.sqrt(np.clip(score_variance, COARSEST[0] ** 2, MOST**2))
    step = np.log(sigma / COARSEST[0]) / np.log(COARSEST[1])
    along = np.clip(
        tilt / np.maximum(score_variance, 1e-30) / np.maximum(value_spread, 1e-30), 0.0, 1.0
    )
    known = np.isfinite(result) & (tokens > 1)
    for length in np.unique(tokens[known]):
        here = known & (tokens == length)
        for place in np.unique(np.round(step[here])):
            there = here & (np.round(step) == place)
            a, b = _drawn(round(length), COARSEST[0] * COARSEST[1] ** place)
            squared = along[there][:, None] * a + (1 - along[there][:, None]) * b
            result[there] *= np.sqrt(np.median(squared, 1) / np.mean(squared, 1))
    return result


@functools.lru_cache(maxsize=256)
def _drawn(length: int, sigma: float) -> tuple[Array, Array]:
    """A² and B of drawn prompts."""
    xi = np.random.default_rng(0).standard_normal((int(np.clip(DRAWN / length, 64, 2048)), length))
    weights = scipy.special.softmax(sigma * xi, -1)
    centred = xi - xi.mean(-1, keepdims=True)
    difference = weights - (1 + sigma * centred) / length
    return (difference * xi).sum(-1) ** 2, (difference**2).sum(-1)


def _coefficients(tokens: Array, logs: Array) -> tuple[Array, Array]:
    """Both coefficients of the law at pairs of a number of keys and ln σ: cubic splines of their
    logarithms.
    """
    from scipy.interpolate import CubicSpline

    lengths, which = np.unique(tokens, return_inverse=True)
    if len(lengths) == 1 and len(logs) <= 16:  # no table for a few
        along, across = own_moment_error(float(lengths[0]), torch.from_numpy(np.exp(2 * logs)))
        return along.numpy(), across.numpy()
    knots = lengths
    octaves = np.log2(lengths[-1] / EVERY)
    if octaves > 0 and len(lengths) > EVERY + PER_OCTAVE * octaves:
        rest = np.geomspace(EVERY, lengths[-1], int(np.ceil(PER_OCTAVE * octaves)) + 1)
        knots = np.unique([*lengths[lengths < EVERY], *rest.round()])
    first, last = (int(np.floor(each / SPACING)) for each in (logs.min(), logs.max()))
    blocks = range((first - 1) // BLOCK, (last + 2) // BLOCK + 1)  # with a step beyond either end
    table = np.stack(
        [np.concatenate([_tabulated(float(knot), block) for block in blocks], -1) for knot in knots]
    )
    grid = SPACING * (BLOCK * blocks.start + np.arange(table.shape[-1]))
    if len(knots) < len(lengths):
        table = CubicSpline(np.log(knots), table)(np.log(lengths))
    cell = np.clip(((logs - grid[0]) / SPACING).astype(np.int64), 0, len(grid) - 2)
    pieces = CubicSpline(grid, table, axis=-1).c[:, cell, which]  # (power, pair, coefficient)
    found = np.exp(np.polyval(pieces, (logs - grid[cell])[:, None]))
    return found[:, 0], found[:, 1]


@functools.lru_cache(maxsize=4096)
def _tabulated(length: float, block: int) -> Array:
    """Logarithms of both coefficients at ``BLOCK`` neighbouring ln σ, shape (coefficient, σ); kept,
    as audits ask for the same.
    """
    logs = SPACING * (BLOCK * block + np.arange(BLOCK))
    inside = np.minimum(logs, np.log(MOST))
    values = torch.stack(own_moment_error(length, torch.from_numpy(np.exp(2 * inside)))).numpy()
    # one token has no error; beyond, both grow like σ²
    found: Array = np.log(np.maximum(values, 1e-300)) + 2 * (logs - inside)
    return found
