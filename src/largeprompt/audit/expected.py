"""The part of a head's affine error that Gaussian keys and values of the same moments and the same number would have anyway."""

from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray

from largeprompt.audit.own_moments import own_moment_error
from largeprompt.law import collision_moments

Array = NDArray[np.float64]
LEAST, MOST = 0.03, 500.0  # standard deviations of the scores between which the law is tabulated; both coefficients start like σ⁴
SPACING = 0.14  # of ln σ in the table
PER_OCTAVE, EVERY = 3, 12  # lengths that are tabulated where there are many: all up to 12, then three in every octave and the last


def expected_affine_error(tokens: Array, score_variance: Array, tilt: Array, value_spread: Array) -> Array:
    """E‖T - T̂‖² of the exact finite-length law: along ‖e‖² + across (tr Γ_v - ‖e‖²), e = Γ_vk u/σ (see own_moments).

    The arguments are those of :class:`Moments`, and broadcast. The two coefficients are interpolated in ln σ, and in ln L where
    there are many lengths; both to one part in a thousand.
    """
    tokens, score_variance, tilt, value_spread = np.broadcast_arrays(tokens, score_variance, tilt, value_spread)
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


class Moments(NamedTuple):
    """Moments of a head's keys and values that its law needs, over the keys that a query sees; all arrays of one shape."""

    tokens: Array  # number of keys
    score_variance: Array  # σ² of their scores s
    mean_square: Array  # ‖v̄‖², in the same unit as what follows
    mean_tilt: Array  # v̄·c with c = Cov(v, s)
    tilt: Array  # ‖c‖²
    value_spread: Array  # tr Cov(v)

    def law(self) -> Self:
        """Moments of the law behind: what L tokens add to ‖v̄‖² and ‖c‖² by chance is taken off."""
        chance = self.value_spread / self.tokens
        tilt = (self.tilt - self.score_variance * chance) / (1 + 1 / self.tokens)
        return self._replace(
            mean_square=np.maximum(self.mean_square - chance, 0.0), tilt=np.clip(tilt, 0.0, self.score_variance * self.value_spread)
        )


def expected_output(length: float, moments: Moments) -> Array:
    """E‖T_L‖² of the exact law: ‖v̄ + (1 - E Y)c‖² + (‖c‖²/σ²) Var S + (tr Γ_v - ‖c‖²/σ²) E Y, for L Gaussian tokens."""
    q = np.maximum(moments.score_variance, 1e-12)
    scale = torch.from_numpy(np.clip(np.sqrt(q), 1e-6, MOST))
    y, w3, y2 = (each.numpy() for each in collision_moments(length, scale))
    variance = y + q * (1 - y - 6 * w3 + 6 * y2) - q * (1 - y) ** 2
    part = np.minimum(moments.tilt / q, moments.value_spread)
    mean = moments.mean_square + 2 * (1 - y) * moments.mean_tilt + (1 - y) ** 2 * moments.tilt
    found: Array = np.maximum(mean, 0.0) + part * variance + (moments.value_spread - part) * y
    return found


def needed_length(moments: Moments, tolerance: float) -> Array:
    """Smallest power of two, 16 to 2^24, at which the law expects an affine error within ``tolerance`` of the output; else inf.

    Both error and output are those of L Gaussian tokens with the moments of :meth:`Moments.law`: where keys are not
    correlated with values, the output vanishes as fast as the error, and no length is enough.
    """
    law = moments.law()
    going = np.isfinite(law.score_variance) & np.isfinite(law.tilt) & np.isfinite(law.value_spread)
    result = np.where(going, np.inf, np.nan)
    for length in 2.0 ** np.arange(4, 25):
        if not going.any():
            break
        here = Moments(*(each[going] for each in law))
        error = expected_affine_error(np.full(here.tilt.shape, length), here.score_variance, here.tilt, here.value_spread)
        reached = going.copy()
        reached[going] = error <= tolerance**2 * expected_output(length, here)
        result[reached] = length
        going &= ~reached
    return result


def _coefficients(tokens: Array, logs: Array) -> tuple[Array, Array]:
    """Both coefficients of the law at pairs of a number of keys and ln σ: cubic splines of their logarithms."""
    from scipy.interpolate import CubicSpline

    lengths, which = np.unique(tokens, return_inverse=True)
    if len(lengths) == 1 and len(logs) <= 16:  # no table for a few
        along, across = own_moment_error(float(lengths[0]), torch.from_numpy(np.exp(2 * logs)))
        return along.numpy(), across.numpy()
    low, high = logs.min() - 0.1, logs.max() + 0.1
    grid = np.linspace(low, high, max(6, int(np.ceil((high - low) / SPACING)) + 1))
    variance = torch.from_numpy(np.exp(2 * grid))
    knots = lengths
    octaves = np.log2(lengths[-1] / EVERY)
    if octaves > 0 and len(lengths) > EVERY + PER_OCTAVE * octaves:
        rest = np.geomspace(EVERY, lengths[-1], int(np.ceil(PER_OCTAVE * octaves)) + 1)
        knots = np.unique([*lengths[lengths < EVERY], *rest.round()])
    values = np.stack([torch.stack(own_moment_error(float(knot), variance)).numpy() for knot in knots])  # (length, coefficient, σ)
    table = np.log(np.maximum(values, 1e-300))  # one token has no error
    if len(knots) < len(lengths):
        table = CubicSpline(np.log(knots), table)(np.log(lengths))
    cell = np.clip(np.searchsorted(grid, logs) - 1, 0, len(grid) - 2)
    pieces = CubicSpline(grid, table, axis=-1).c[:, cell, which]  # (power, pair, coefficient)
    found = np.exp(np.polyval(pieces, (logs - grid[cell])[:, None]))
    return found[:, 0], found[:, 1]
