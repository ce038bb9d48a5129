"""The exact law of attention over L tokens with finitely many values; by Gauss rules, of any law that has one.

A token takes the value a_j with probability p_j and has the score s_j, normalised so that Σ p_j e^{s_j} = 1. With t = e^τ,

    φ = Σ_j p_j e^{-t e^{s_j}},   F = Σ_j p_j c_j t e^{s_j - t e^{s_j}},   G = Σ_j p_j g_j t² e^{2s_j - t e^{s_j}},

    E Σ_l w_l c_l = L ∫ φ^{L-1} F dτ,
    E ‖Σ_l w_l c_l‖² + E Σ_l w_l² e_l = ∫ L φ^{L-1} G + L(L-1) φ^{L-2} ‖F‖² dτ   with g = ‖c‖² + e,

for any features c and e of the tokens, w the softmax of the scores: 1/Z and 1/Z² are integrals of e^{-tZ}, and the tokens are
independent. In τ every integrand is a mixture of shifted e^{nτ - e^τ}, so that the trapezoidal rule with step h is wrong
by about e^{-π²/h}.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures import Discrete

STEP = 0.25  # e^{-π²/h} = 7e-18
NEGLIGIBLE = 42.0  # -log of what counts as nothing
MARGIN = 21.0  # the integrands vanish like t² below


def _grid(scores: Tensor, log_mass: Tensor, length: float) -> Tensor:
    """τ from where t² is nothing to where every token of some probability has e^{-t e^s} of nothing, or φ^{L-2} is."""
    low, high = -math.log(length) - MARGIN, 4.0 - float(scores.min())
    tau = torch.arange(low, max(high, low) + 1.0, 0.5, dtype=torch.float64)
    grown = tau + scores.amin(0).unsqueeze(-1)  # (j, τ), the slowest to vanish of the batch
    alive = log_mass.unsqueeze(-1) + 2 * grown - torch.exp(grown.clamp_max(300.0))
    kept = torch.logsumexp(log_mass.unsqueeze(-1) - torch.exp(grown.clamp_max(300.0)), 0)
    size = alive.amax(0) + max(length - 2, 0) * kept + 2 * math.log(length)
    last = int(torch.nonzero(size > -NEGLIGIBLE)[-1]) if bool((size > -NEGLIGIBLE).any()) else len(tau) - 1
    return torch.arange(low, float(tau[last]) + 1.0, STEP, dtype=torch.float64)


def _normalised(scores: Tensor, probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """Scores less Λ, and the logarithms of the probabilities."""
    log_mass = torch.where(probabilities > 0, torch.log(probabilities.clamp_min(1e-300)), -math.inf)
    return scores - torch.logsumexp(scores + log_mass, -1, keepdim=True), log_mass


def _integrands(scores: Tensor, probabilities: Tensor, length: float) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Normalised scores, τ, and on the grid t e^s, e^{-t e^s} and one minus that (..., τ, j), and log φ (..., τ)."""
    scores, log_mass = _normalised(scores, probabilities)
    tau = _grid(scores.detach().reshape(-1, scores.shape[-1]), log_mass.detach(), length)
    grown = torch.exp((tau.unsqueeze(-1) + scores.unsqueeze(-2)).clamp_max(300.0))
    survival, died = torch.exp(-grown), -torch.expm1(-grown)
    lost, kept = died @ probabilities, survival @ probabilities
    log_phi = torch.where(lost < 0.5, torch.log1p(-lost.clamp_max(0.75)), torch.log(kept.clamp_min(1e-300)))
    return scores, tau, grown, survival, died, log_phi


def _centred(
    scores: Tensor, probabilities: Tensor, features: Tensor, length: float, extra: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Limit T = Σ p e^s c of the features, E Σ w c - T, E‖Σ w c - T‖² + E Σ w² e, and E Σ w²."""
    scores, tau, grown, survival, died, log_phi = _integrands(scores, probabilities, length)
    mass = probabilities * grown
    squared = mass * survival * grown
    limit = (probabilities * torch.exp(scores)).unsqueeze(-2) @ features  # (..., 1, o)
    centred = features - limit
    # Σ p e^s (c - T) = 0, so that both forms are F; the first keeps its digits where t e^s is small, the second where it is large
    early = tau.unsqueeze(-1) < 0  # as Σ p e^s = 1
    first = torch.where(early, -died, survival) * mass @ centred
    sizes = centred.square().sum(-1) if extra is None else centred.square().sum(-1) + extra
    second = (squared @ sizes.unsqueeze(-1)).squeeze(-1)
    once = length * torch.exp((length - 1) * log_phi) * STEP
    twice = length * (length - 1) * torch.exp(max(length - 2, 0) * log_phi) * STEP
    bias = (once.unsqueeze(-1) * first).sum(-2)
    square = (once * second + twice * first.square().sum(-1)).sum(-1)
    return limit.squeeze(-2), bias, square, (once * squared.sum(-1)).sum(-1)


def _real_length(name: str, value: Any) -> float:
    """A length that need not be whole."""
    length = validation.number(name, value)
    if not 1 <= length <= validation.LONGEST:
        raise InvalidArgumentError(name, f"{length:g}", "a number from 1 to 10^15")
    return length


def _several(value: Any) -> list[Any]:
    """Lengths as a list, each still to be checked."""
    if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray | Tensor) or not np.ndim(value) or not len(value):
        raise InvalidArgumentError("lengths", repr(value), "a sequence of at least one length", "Write [10] for one.")
    return list(value)


def read_out_moments(
    scores: Tensor, probabilities: Tensor, features: Tensor, length: float, *, extra: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """E Σ w_l c_l, shape (..., o), and E‖Σ w_l c_l‖² + E Σ w_l² e_l, shape (...), over L independent tokens; differentiable.

    Parameters
    ----------
    scores
        s_j of each atom, shape (..., j).
    probabilities
        p_j, shape (j,).
    features
        c_j, shape (..., j, o).
    length
        L, from 1 on; it need not be whole.
    extra
        e_j, shape (..., j); nothing when left out.

    Examples
    --------
    Two fair signs with tilt ½ are read as 1, as -1, or as tanh ½ when they differ:

    >>> from largeprompt.law.atomic import read_out_moments
    >>> signs, half = torch.tensor([1.0, -1.0], dtype=torch.float64), torch.tensor([0.5, 0.5], dtype=torch.float64)
    >>> mean, square = read_out_moments(signs / 2, half, signs.unsqueeze(-1), 2)
    >>> print(f"{float(mean):.12f} {math.tanh(0.5) / 2:.12f}")
    0.231058578630 0.231058578630
    """
    scores = validation.last_dimensions("scores", validation.tensor("scores", scores), ("atoms",))
    count = scores.shape[-1]
    probabilities = validation.tensor("probabilities", probabilities, like=scores)
    if probabilities.shape != (count,):
        given = f"shape {validation.shape_text(probabilities.shape)}"
        raise InvalidArgumentError("probabilities", given, f"shape ({count},), one for each score")
    validation.weights("probabilities", probabilities)
    features = validation.tensor("features", features, like=scores)
    validation.last_dimensions("features", features, (count, "o"), ": a row for each score")
    if extra is not None:
        extra = validation.last_dimensions("extra", validation.tensor("extra", extra, like=scores), (count,), ", as the scores")
    leading = [scores.shape[:-1], features.shape[:-2], *([] if extra is None else [extra.shape[:-1]])]
    validation.broadcast("scores, features and extra", *leading)
    limit, bias, square, _ = _centred(scores, probabilities, features, _real_length("length", length), extra)
    return limit + bias, square + (limit * (2 * bias + limit)).sum(-1)


def atomic_errors(mu: Discrete, u: Tensor, lengths: Sequence[float]) -> tuple[Tensor, Tensor, Tensor]:
    """E T_L - T (length, ..., d), E‖T_L - T‖² (length, ...) and E Σ w² (length, ...) at V = I, for tilts u of shape (..., d).

    Examples
    --------
    >>> from largeprompt.law.atomic import atomic_errors
    >>> coin = lp.Discrete([[-1.0], [1.0]], [0.5, 0.5])
    >>> bias, mse, collision = atomic_errors(coin, torch.tensor([0.5], dtype=torch.float64), [1, 1_000_000])
    >>> print(f"{float(mse[0]):.6f} {1e6 * float(mse[1]):.6f}")  # E (z - tanh ½)² for one token
    1.213552 0.618501
    """
    if not isinstance(mu, Discrete) or mu.batch_shape:
        raise InvalidArgumentError("mu", repr(mu), "one Discrete law", "Give a law its Gauss rule: gauss_rule(mu, nodes).")
    u = mu._tilts(u)
    found = []
    for length in _several(lengths):
        found.append(_centred(u @ mu.atoms.mT, mu.weights, mu.atoms, _real_length("lengths", length))[1:])
    bias, mse, collision = (torch.stack([one[i] for one in found]) for i in range(3))
    return bias, mse, collision


def scalar_error_moments(mu: Discrete, u: Tensor, lengths: Sequence[int]) -> Tensor:
    """E (T_L - T)^n, n = 1 to 4, for scalar tokens: shape (length, ..., 4) for tilts u of shape (..., 1).

    E (Σ w c)^n = ∫ Σ over partitions of n: L(L-1)...(L-k+1) φ^{L-k} Π B_b dτ/(n-1)!,
    B_b = Σ_j p_j c_j^b t^b e^{b s_j - t e^{s_j}}.

    Examples
    --------
    >>> from largeprompt.law.atomic import scalar_error_moments
    >>> coin = lp.Discrete([[-1.0], [1.0]], [0.5, 0.5])
    >>> scalar_error_moments(coin, torch.zeros(1, dtype=torch.float64), [2])  # the mean of two signs: -1, 0, 0 or 1
    tensor([[0.0000, 0.5000, 0.0000, 0.5000]], dtype=torch.float64)
    """
    if not isinstance(mu, Discrete) or mu.batch_shape or mu.dim != 1:
        raise InvalidArgumentError("mu", repr(mu), "one Discrete law on the line")
    u = mu._tilts(u)
    found = []
    for length in (int(validation.length("lengths", each)) for each in _several(lengths)):
        scores, tau, grown, survival, died, log_phi = _integrands(u @ mu.atoms.mT, mu.weights, length)
        centre = (mu.weights * torch.exp(scores)) @ mu.atoms  # (..., 1)
        c = (mu.atoms[:, 0] - centre).unsqueeze(-2)  # (..., 1, j)
        early = tau.unsqueeze(-1) < 0
        b1 = (torch.where(early, -died, survival) * mu.weights * grown * c).sum(-1)
        bounded = grown.clamp_max(1e4)  # nothing survives beyond
        b2, b3, b4 = ((mu.weights * survival * (bounded * c) ** n).sum(-1) for n in (2, 3, 4))
        drawn = [float(math.perm(length, k)) * torch.exp(max(length - k, 0) * log_phi) * STEP for k in range(1, 5)]
        integrands = [
            drawn[0] * b1,
            drawn[0] * b2 + drawn[1] * b1**2,
            (drawn[0] * b3 + 3 * drawn[1] * b2 * b1 + drawn[2] * b1**3) / 2,
            (drawn[0] * b4 + drawn[1] * (4 * b3 * b1 + 3 * b2**2) + 6 * drawn[2] * b2 * b1**2 + drawn[3] * b1**4) / 6,
        ]
        found.append(torch.stack([value.sum(-1) for value in integrands], -1))
    return torch.stack(found)
