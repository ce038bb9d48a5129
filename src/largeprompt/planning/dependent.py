"""Effective length of a prompt whose tokens depend on each other."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import SoftmaxAttention
from largeprompt.devices import sheltered
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures import Gaussian
from largeprompt.validation import Lengths

SMALLEST = 1e-17  # autocorrelations below this are left out
MOST_LAGS = 1 << 24  # 128 MiB


@sheltered
def effective_length(
    attention: SoftmaxAttention,
    mu: Gaussian,
    z: Tensor,
    length: Lengths,
    correlation: float | Sequence[float],
) -> Tensor:
    """Number of independent tokens that are worth as much as L dependent ones, to first order.

        L_eff = e^q (tr VΓV^T + ‖VΓu‖²) / Σ_{abs(k) < L} (1/L)(1 - abs(k)/L) e^{q c_k} (c_k tr
        VΓV^T + c_k² ‖VΓu‖²)

    for Gaussian tokens with Cov(z_0, z_k) = c_k Γ and scores of variance q, formula (first.9) of
    docs/mathematics/first_order.md.

    Parameters
    ----------
    attention, mu, z
        The layer, the law of one token, and queries (..., d), as for :func:`finite_prompt`.
    length
        L, or several, which then lead the shape of the result.
    correlation
        φ in (-1, 1), for c_k = φ^k (an AR(1) process), or the autocorrelations c_1, c_2, ..., zero
        beyond the last.

    Examples
    --------
    >>> from largeprompt.planning import effective_length
    >>> attention, mu = lp.SoftmaxAttention([[1.0]], [[1.0]]), lp.Gaussian([0.0], [[1.0]])
    >>> print(f"{float(effective_length(attention, mu, [0.0], 3_000_000, 0.5)):.4g}")
    1e+06
    >>> print(f"{float(effective_length(attention, mu, [1.5], 3_000_000, 0.5)):.3g}")
    2.34e+06
    """
    if not isinstance(attention, SoftmaxAttention) or attention.heads:
        raise InvalidArgumentError(
            "attention", validation.text(attention), "SoftmaxAttention with a single head"
        )
    if not isinstance(mu, Gaussian) or mu.batch_shape:
        raise InvalidArgumentError("mu", validation.text(mu), "one Gaussian, the law of each token")
    lengths, several = validation.lengths("length", length)
    values, z = attention._values(mu, z)
    u = attention._tilts(z)
    shift = mu.shift(u)
    q = (u * shift).sum(-1)
    total = torch.trace(attention.V @ mu.covariance @ attention.V.mT)
    size = (values @ shift.unsqueeze(-1)).squeeze(-1).square().sum(-1)
    validation.in_range("z", q + total + size)
    c = _autocorrelations(correlation, int(max(lengths))).to(u)
    lag = torch.arange(1, len(c) + 1, dtype=u.dtype, device=u.device)
    found = []
    for long in lengths:
        share = 2 * (1 - lag / long).clamp_min(0.0)
        grown = torch.exp(q.unsqueeze(-1) * (c - 1))  # e^{q c_k} over e^q
        lagged = share * grown * (c * total + c.square() * size.unsqueeze(-1))
        variance = total + size + lagged.sum(-1)
        if bool(((variance <= 0) & (total + size > 0)).any()):
            given = f"autocorrelations that give the mean of {long:g} tokens a negative variance"
            allowed = "autocorrelations of a stationary process, which are positive definite"
            raise InvalidArgumentError("correlation", given, allowed)
        # a point mass has no error
        found.append(long * torch.where(total + size > 0, (total + size) / variance, 1.0))
    return torch.stack(found) if several else found[0]


def _autocorrelations(correlation: Any, length: int) -> Tensor:
    """c_1, c_2, ... up to the last that matters."""
    c = validation.tensor("correlation", correlation).to(torch.float64)
    if c.dim() > 1 or (c.dim() == 0 and not abs(float(c)) < 1):
        given = f"{float(c):g}" if c.dim() == 0 else f"shape {validation.shape_text(c.shape)}"
        raise InvalidArgumentError(
            "correlation", given, "a number between -1 and 1, or a sequence of autocorrelations"
        )
    if c.dim() == 0:
        # φ^k is nothing beyond this lag
        memory = math.ceil(math.log(SMALLEST) / math.log(abs(float(c)))) if c else 0
        count = min(length - 1, 1 + memory)
        if count > MOST_LAGS:
            given = f"{float(c)!r}, which {count} lags matter for"
            raise InvalidArgumentError("correlation", given, f"at most {MOST_LAGS} lags")
        return c ** torch.arange(1, count + 1, dtype=torch.float64, device=c.device)
    if bool((c.abs() > 1).any()):
        raise InvalidArgumentError(
            "correlation", f"{float(c.abs().max()):g}", "autocorrelations between -1 and 1"
        )
    return c[: length - 1]
