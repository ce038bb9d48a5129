"""The exact law of attention over L tokens with finitely many values, and by Gauss rules of any law that has one.

Formula (quad.10) of docs/mathematics/quadrature.md with sums over atoms; scores are normalised, Σ p_j e^{s_j} = 1.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.law.quadrature import drawn, log_survival
from largeprompt.measures import Discrete

STEP = 0.25  # of τ: integrands are mixtures of shifted e^{nτ - e^τ}, and the trapezoid rule errs by e^{-π²/h} = 7e-18
LOPSIDED = 1e3  # beyond, one form of F is surely the worse
RARE = 12.0  # log E e^{2s} from which the range is widened: e^{12 - 42} of E Σ w² is the most that is left out
NEGLIGIBLE = 42.0  # -log of what counts as nothing


def _grid(scores: Tensor, log_mass: Tensor, length: float) -> Tensor:
    """τ from where L t² E e^{2s}, of E Σ w² >= 1/L, is nothing to where every token has e^{-t e^s} of nothing, or φ^{L-2} is."""
    rare = max(0.0, float(torch.logsumexp(log_mass + 2 * scores, -1).max()) - RARE)  # large where rare tokens have large scores
    low, high = -math.log(length) - (NEGLIGIBLE + rare) / 2, 4.0 - float(scores.min())
    tau = torch.arange(low, max(high, low) + 1.0, 0.5, dtype=torch.float64)
    grown = tau + scores.amin(0).unsqueeze(-1)  # (j, τ), the slowest to vanish of the batch
    alive = log_mass.unsqueeze(-1) + 2 * grown - torch.exp(grown.clamp_max(300.0))
    kept = torch.logsumexp(log_mass.unsqueeze(-1) - torch.exp(grown.clamp_max(300.0)), 0)
    size = alive.amax(0) + max(length - 2, 0) * kept + 2 * math.log(length)
    last = int(torch.nonzero(size > -NEGLIGIBLE)[-1]) if bool((size > -NEGLIGIBLE).any()) else len(tau) - 1
    return torch.arange(low, float(tau[last]) + 1.0, STEP, dtype=torch.float64)


def _integrands(scores: Tensor, probabilities: Tensor, length: float) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Normalised scores, and on the grid t e^s, e^{-t e^s}, that or e^{-t e^s} - 1 (..., τ, j), and log φ (..., τ).

    As Σ p e^s (c - T) = 0, e^{-t e^s} and e^{-t e^s} - 1 give the same F for centred features; the latter keeps its digits where
    t e^s is small (before τ = 0, as Σ p e^s = 1, unless a rare large score makes up that sum), the former where it is large.
    """
    log_mass = torch.where(probabilities > 0, torch.log(probabilities.clamp_min(1e-300)), -math.inf)
    scores = scores - torch.logsumexp(scores + log_mass, -1, keepdim=True)
    tau = _grid(scores.detach().reshape(-1, scores.shape[-1]), log_mass.detach(), length)
    grown = torch.exp((tau.unsqueeze(-1) + scores.unsqueeze(-2)).clamp_max(300.0))
    survival, died = torch.exp(-grown), -torch.expm1(-grown)
    lost, kept = died @ probabilities, survival @ probabilities
    with torch.no_grad():
        sizes = ((probabilities * grown * each).sum(-1, keepdim=True) for each in (died, survival))
        early = (tau.unsqueeze(-1) < 0) & (next(sizes) < LOPSIDED * next(sizes))
    return scores, grown, survival, torch.where(early, -died, survival), log_survival(lost, kept)


def _centred(
    scores: Tensor, probabilities: Tensor, features: Tensor, length: float, extra: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Limit T = Σ p e^s c of the features, E Σ w c - T, E‖Σ w c - T‖² + E Σ w² e, and E Σ w²."""
    scores, grown, survival, factor, log_phi = _integrands(scores, probabilities, length)
    mass = probabilities * grown
    squared = mass * survival * grown
    limit = (probabilities * torch.exp(scores)).unsqueeze(-2) @ features  # (..., 1, o)
    centred = features - limit
    first = factor * mass @ centred
    sizes = centred.square().sum(-1) if extra is None else centred.square().sum(-1) + extra
    second = (squared @ sizes.unsqueeze(-1)).squeeze(-1)
    once, twice = (drawn(length, k, log_phi, STEP) for k in (1, 2))
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


def feature_moments(
    scores: Tensor, probabilities: Tensor, features: Tensor, length: float, *, extra: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """E Σ w_l c_l, shape (..., o), and E‖Σ w_l c_l‖² + E Σ w_l² e_l, shape (...), of any features c, e of L tokens; differentiable.

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

    Returns
    -------
    tuple of Tensor
        The mean and the mean square.

    Examples
    --------
    Two fair signs with tilt ½ are read as 1, as -1, or as tanh ½ when they differ:

    >>> from largeprompt.law.atomic import feature_moments
    >>> signs, half = torch.tensor([1.0, -1.0], dtype=torch.float64), torch.tensor([0.5, 0.5], dtype=torch.float64)
    >>> mean, square = feature_moments(signs / 2, half, signs.unsqueeze(-1), 2)
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


def discrete_error_moments(mu: Discrete, u: Tensor, lengths: Sequence[int]) -> Tensor:
    """E (T_L - T)^n, n = 1 to 4, for scalar tokens: shape (length, ..., 4) for tilts u of shape (..., 1).

    Formula (quad.4) of docs/mathematics/quadrature.md. Lengths lead; L from 1 to 10^15.

    Examples
    --------
    >>> from largeprompt.law.atomic import discrete_error_moments
    >>> coin = lp.Discrete([[-1.0], [1.0]], [0.5, 0.5])
    >>> discrete_error_moments(coin, torch.zeros(1, dtype=torch.float64), [2])  # the mean of two signs: -1, 0, 0 or 1
    tensor([[0.0000, 0.5000, 0.0000, 0.5000]], dtype=torch.float64)
    """
    if not isinstance(mu, Discrete) or mu.batch_shape or mu.dim != 1:
        raise InvalidArgumentError("mu", repr(mu), "one Discrete law on the line")
    u = mu._tilts(u)
    found = []
    for length in (int(validation.length("lengths", each)) for each in _several(lengths)):
        scores, grown, survival, factor, log_phi = _integrands(u @ mu.atoms.mT, mu.weights, length)
        centre = (mu.weights * torch.exp(scores)) @ mu.atoms  # (..., 1)
        c = (mu.atoms[:, 0] - centre).unsqueeze(-2)  # (..., 1, j)
        b1 = (factor * mu.weights * grown * c).sum(-1)
        bounded = grown.clamp_max(1e4)  # nothing survives beyond
        b2, b3, b4 = ((mu.weights * survival * (bounded * c) ** n).sum(-1) for n in (2, 3, 4))
        one, two, three, four = (drawn(length, k, log_phi, STEP) for k in range(1, 5))
        integrands = [
            one * b1,
            one * b2 + two * b1**2,
            (one * b3 + 3 * two * b2 * b1 + three * b1**3) / 2,
            (one * b4 + two * (4 * b3 * b1 + 3 * b2**2) + 6 * three * b2 * b1**2 + four * b1**4) / 6,
        ]
        found.append(torch.stack([value.sum(-1) for value in integrands], -1))
    return torch.stack(found)
