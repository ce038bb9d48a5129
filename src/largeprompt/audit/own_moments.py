"""How far softmax attention over L Gaussian tokens is from the affine read-out made of the same
tokens' own moments.
"""

from typing import Any

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.law import collision_moments


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

    Examples
    --------
    >>> from largeprompt.audit.own_moments import own_moment_error
    >>> along, across = own_moment_error(100, 1.0)
    >>> f"{float(along):.6f} {float(across):.6f}"
    '0.017872 0.005949'
    """
    length = validation.length("length", length)
    q = validation.tensor("score_variance", score_variance)
    if not bool((q >= 0).all() and torch.isfinite(q).all()):
        raise InvalidArgumentError(
            "score_variance",
            f"values from {float(q.min()):g}",
            "finite numbers that are not negative",
        )
    q = q.detach().to(torch.float64)
    if length == 1:
        return torch.zeros_like(q), torch.zeros_like(q)
    y, w3, y2 = collision_moments(length, q.sqrt())
    across = y - 1 / length - 2 * q * (1 - y) / length + q * (length - 1) / length**2
    along = y - 1 / length + q * (y - 2 * (1 - y) / length - 1 / length**2 - 6 * w3 + 6 * y2)
    along = along + 4 * q**2 * (y - 4 * w3 + 3 * y2) / length
    return along.clamp_min(0.0), across.clamp_min(0.0)
