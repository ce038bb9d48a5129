"""Rigorous upper bounds on E‖T_L - T‖², with every constant given, for any length.

Proofs: docs/certificates.md.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import SoftmaxAttention
from largeprompt.certificates import split
from largeprompt.certificates.ingredients import gather
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures import Gaussian, Measure


def outward(bound: Tensor) -> Tensor:
    """Round a bound away from the truth, by more than the rounding of the sums it is made of."""
    return bound * (1 + 1024 * torch.finfo(bound.dtype).eps)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Certificate:
    """A proved upper bound, with its pieces.

    Shapes: lengths lead (nothing for a single length), then heads, then queries.

    Attributes
    ----------
    bound
        Upper bound of E‖T_L - T‖².
    leading
        The part that falls like 1/L: (ρ/L) times the variance of the tilt by 2u around T.
    remainder
        ``bound`` minus what the leading part and its corrections give: the price of a small normaliser.
    theta
        The level below which the normaliser counts as small; 1 where none is needed.
    rho
        ρ = e^{Λ(2u) - 2Λ(u)}; a prompt must be longer than that to be read well. Infinite where Λ(2u) is.
    length
        L, a number or a tuple.
    reason
        In words, which bound was taken; for one length and one query a string, else an array of strings.
    """

    bound: Tensor
    leading: Tensor
    remainder: Tensor
    theta: Tensor
    rho: Tensor
    length: float | tuple[float, ...]
    reason: Any
    numerator: Tensor | None = None  # E‖N‖², where the error is N/D; None where it is not of that form

    def tail(self, distance: Any) -> Tensor:
        """Upper bound of P(‖T_L - T‖ > distance).

        The smaller of bound/distance² (Markov) and, for the output, P(D < θ) + E‖N‖²/(θ distance)² over θ, with
        P(D < θ) <= e^{-L(1-θ)²/(2ρ)}.
        """
        t = validation.tensor("distance", distance, like=self.bound)
        if not bool((t > 0).all()):
            raise InvalidArgumentError("distance", f"{float(t.min()):.6g}", "positive numbers")
        markov = self.bound / t**2
        if self.numerator is None:
            return outward(markov).clamp_max(1.0)
        lengths = torch.as_tensor(self.length, dtype=self.bound.dtype, device=self.bound.device)
        lengths = lengths.reshape(lengths.shape + (1,) * (self.bound.dim() - lengths.dim()))
        theta = torch.linspace(0.02, 0.995, 196, dtype=self.bound.dtype, device=self.bound.device)
        theta = theta.reshape(-1, *(1,) * max(self.bound.dim(), t.dim()))
        probability = torch.exp(-lengths * (1 - theta) ** 2 / (2 * self.rho)) + self.numerator / (theta * t) ** 2
        candidates = torch.where(torch.isfinite(self.rho), probability, torch.inf).amin(0)
        return outward(torch.minimum(candidates, markov)).clamp_max(1.0)

    def __repr__(self) -> str:
        if self.bound.dim():
            return f"Certificate(batch={tuple(self.bound.shape)}, length={self.length})"
        return (
            f"Certificate(length={self.length:g}, rmse <= {float(self.bound) ** 0.5:.4g}, rho={float(self.rho):.4g}, {self.reason})"
        )


def gaussian_collision_bound(score_variance: Tensor, length: float) -> Tensor:
    """(x/L)(1 - (1 - 1/x)^L), x = e^{σ²}: an upper bound of E Y = E Σ w² for Gaussian scores, with equality at L = 1."""
    small = torch.exp(-score_variance)  # 1/x
    log_power = length * torch.log1p(-small)
    ratio = -torch.expm1(log_power) / (length * small)
    return torch.where(length * small < 1e-280, torch.ones_like(small), ratio)


def certificate(attention: SoftmaxAttention, mu: Measure, z: Tensor, length: int | float | Sequence[int | float]) -> Certificate:
    """Rigorous upper bound of E‖T_L - T‖² for a prompt of L independent tokens, any law, any L >= 1.

    Gaussian tokens: (x/L)(1 - (1 - 1/x)^L)(tr VΓV^T + ‖VΓu‖²), x = e^{u^TΓu}. Other laws with a finite cgf at 2u: the split bound
    of docs/certificates.md, optimised over θ; with Λ(pu) finite for some 1 < p < 2 only: a slower one; and never more than what
    holds because T_L is an average of tokens. Bounds are numbers: no gradient flows through them.

    Parameters
    ----------
    attention
        The layer.
    mu
        The law of the tokens.
    z
        Queries, shape ``(*queries, d)``.
    length
        L >= 1, or several, which then lead the shape of every result.

    Raises
    ------
    TiltDomainError
        Where the cgf is infinite at u itself: there is no limit to be close to.

    Examples
    --------
    >>> from largeprompt.certificates import certificate
    >>> attention = lp.SoftmaxAttention([[1.0]], [[1.0]])
    >>> certificate(attention, lp.Gaussian([0.0], [[1.0]]), [1.0], length=1000)
    Certificate(length=1000, rmse <= 0.07373, rho=2.718, closed form for Gaussian tokens)
    >>> certificate(attention, lp.Laplace(1), [0.3], length=1000).reason
    'split bound, second order, theta = 0.72'
    """
    if not isinstance(attention, SoftmaxAttention):
        raise InvalidArgumentError("attention", type(attention).__name__, "SoftmaxAttention")
    lengths, several = validation.lengths("length", length)
    values, z = attention._values(mu, z)
    with torch.no_grad():
        u = attention.tilts(z)
        if isinstance(mu, Gaussian):
            parts = _gaussian(mu, u, values, lengths)
        else:
            if mu.batch_shape:
                raise InvalidArgumentError("mu", repr(mu), "one law, without batch dimensions", "Loop over the laws.")
            parts = _general(attention, mu, u, lengths)
    stacked = [torch.stack(list(column)) for column in zip(*(part[:5] for part in parts), strict=True)]
    reasons = np.stack([part[5] for part in parts])
    if not several:
        stacked, reasons = [column[0] for column in stacked], np.asarray(reasons[0], dtype=object)
    bound, leading, remainder, theta, rho = stacked
    return Certificate(
        outward(bound),
        leading,
        remainder,
        theta,
        rho,
        tuple(lengths) if several else lengths[0],
        reasons.item() if reasons.ndim == 0 else reasons,
        numerator=leading,
    )


def _gaussian(mu: Gaussian, u: Tensor, values: Tensor, lengths: Sequence[float]) -> list[tuple[Any, ...]]:
    shift = mu.shift(u)
    score_variance = (u * shift).sum(-1).clamp_min(0.0)
    spread = ((values @ mu.covariance) * values).sum(dim=(-2, -1))  # tr VΓV^T
    size = spread + (values @ shift.unsqueeze(-1)).squeeze(-1).square().sum(-1)
    rho = torch.exp(score_variance).expand(size.shape)
    one, zero = torch.ones_like(size), torch.zeros_like(size)
    reason = np.full(tuple(size.shape), "closed form for Gaussian tokens", dtype=object)
    return [
        (gaussian_collision_bound(score_variance, length) * size, rho / length * size, zero, one, rho, reason) for length in lengths
    ]


def _general(attention: SoftmaxAttention, mu: Measure, u: Tensor, lengths: Sequence[float]) -> list[tuple[Any, ...]]:
    """Loop over heads (they differ in V), vectorised over the queries of each."""
    heads = math.prod(attention.heads)
    queries = u.shape[len(attention.U.shape) - 2 : -1]
    tilts = u.expand(*attention.heads, *queries, mu.dim).reshape(heads, -1, mu.dim)
    matrices = attention.V.expand(*attention.heads, *attention.V.shape[-2:]).reshape(heads, *attention.V.shape[-2:])
    per_head = []
    for tilt, V in zip(tilts, matrices, strict=True):
        ingredients = gather(mu, tilt, V)
        per_head.append([split.bound(ingredients, mu, tilt, V, one) for one in lengths])
    shape = (*attention.heads, *queries)
    results = []
    for i in range(len(lengths)):
        columns = list(zip(*(head[i] for head in per_head), strict=True))
        numbers = [torch.stack(list(column)).reshape(shape) for column in columns[:5]]
        results.append((*numbers, np.stack(columns[5]).reshape(shape)))
    return results
