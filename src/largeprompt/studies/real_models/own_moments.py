"""Exact error of the affine read-out with a prompt's own moments, over L Gaussian tokens."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from largeprompt.law import collision_moments

Array = NDArray[np.float64]
# Standard deviations of the scores between which the law is tabulated. Both coefficients start
# like sigma^4; above MOST the weights are those of an argmax.
LEAST, MOST = 0.03, 500.0
SPACING = 0.14  # steps of ln sigma in the table: its error is 1e-3


def own_moment_error(length: float, score_variance: Any) -> tuple[Tensor, Tensor]:
    """Error of the affine read-out with a prompt's own moments, along the tilt and across it.

    With m̂ and Γ̂ the mean and covariance of the L tokens themselves, T̂ = m̂ + Γ̂u is what softmax
    attention would give if they were an infinite Gaussian prompt. With q = σ² the variance of the
    scores, e = Γu/σ and tokens z = m + eξ + r, ξ standard normal and r independent of it,

        T_L - T̂ = e (S - ξ̄ - σ V̂) + Σ_l r_l [w_l - (1 + σ(ξ_l - ξ̄))/L],   V̂ = mean ξ² - ξ̄²,

    so that E‖V(T_L - T̂)‖² = along ‖Ve‖² + across tr V(Γ - ee^T)V^T. Stein's identity gives, with
    Y = Σ w², W3 = Σ w³ (docs/mathematics/own_moments.md),

        across = E Y - 1/L - 2q(1 - E Y)/L + q(L-1)/L²,
        along  = E Y - 1/L + q E[Y - 2(1 - Y)/L - 1/L² - 6 W3 + 6 Y²] + (4q²/L) E[Y - 4 W3 + 3 Y²],

    of the shape of ``score_variance``, the variances q; both are 0 at ``length`` L = 1.
    """
    q = torch.as_tensor(score_variance, dtype=torch.float64)
    if length == 1:
        return torch.zeros_like(q), torch.zeros_like(q)
    y, w3, y2 = collision_moments(length, q.sqrt())
    across = y - 1 / length - 2 * q * (1 - y) / length + q * (length - 1) / length**2
    along = y - 1 / length + q * (y - 2 * (1 - y) / length - 1 / length**2 - 6 * w3 + 6 * y2)
    along = along + 4 * q**2 * (y - 4 * w3 + 3 * y2) / length
    return along.clamp_min(0.0), across.clamp_min(0.0)


def expected_affine_error(
    tokens: Array, score_variance: Array, tilt: Array, value_spread: Array
) -> Array:
    """E‖T - T̂‖² by the exact law: along ‖e‖² + across (tr Γ_v - ‖e‖²), with e = Γ_vk u/σ.

    The arguments, which broadcast, are taken over the keys that a query sees: their number, the
    variance σ² of their scores s, ‖Cov(v, s)‖² and tr Cov(v). For many heads the two coefficients
    are interpolated in ln σ, to one part in a thousand.
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


def _coefficients(tokens: Array, logs: Array) -> tuple[Array, Array]:
    """Both coefficients at pairs of numbers of keys and ln σ, by splines of their logarithms."""
    from scipy.interpolate import CubicSpline

    found = np.empty((2, len(logs)))
    for length in np.unique(tokens):
        here = tokens == length
        some = logs[here]
        grid = np.arange(some.min() - 2 * SPACING, some.max() + 3 * SPACING, SPACING)
        inside = np.minimum(some if len(some) <= len(grid) else grid, np.log(MOST))
        exact = own_moment_error(float(length), np.exp(2 * inside))
        table = np.log(np.maximum(torch.stack(exact).numpy(), 1e-300))
        if len(some) > len(grid):  # beyond MOST both grow like σ²
            table = CubicSpline(grid, table + 2 * (grid - inside), axis=1)(some)
        found[:, here] = np.exp(table)
    return found[0], found[1]
