"""The exact population risk of several layers at several lengths at once: what every dynamics
descends.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import Attention, LinearAttention, SoftmaxAttention
from largeprompt.errors import InvalidArgumentError, LargePromptError
from largeprompt.law.table import WeightTables

LARGEST_SCORE_VARIANCE = 2048.0  # softmax over 10^15 tokens is frozen from 70 on


class RiskError(LargePromptError):
    """The risk is not a finite number, or not to be had at such parameters or to
    such an accuracy.
    """


def check_scores(largest: float, most: float = LARGEST_SCORE_VARIANCE) -> None:
    """Refuse score variances that are not finite, or larger than any that a trained layer has."""
    if not largest <= most:
        given = (
            f"a score variance of {largest:.3g}"
            if math.isfinite(largest)
            else "parameters that are not finite"
        )
        raise RiskError(
            f"risk: {given}; risks are computed up to {most:.4g}. Use a smaller U; in training, a "
            "smaller step or start."
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Contexts:
    """Points of an average over contexts: given context i tokens are N(0, covariance_i), and query
    and target are fixed.

    Attributes
    ----------
    covariance
        Γ_i, shape (n, D, D); (1, D, D) where all contexts share it.
    query
        z_i, shape (n, D).
    target
        Conditional mean of the answer, shape (n, o).
    weight
        Weights of the average, shape (n,), summing to one.
    noise
        Variance of the answer around its conditional mean, summed over its coordinates.
    """

    covariance: Tensor
    query: Tensor
    target: Tensor
    weight: Tensor
    noise: float


@dataclasses.dataclass(frozen=True, eq=False)
class LayerDerivatives:
    """A risk of several runs and its derivatives in (U, V): (run,), (run, D, D), (run, o, D), and
    (run, p, p) where asked.
    """

    value: Tensor
    in_u: Tensor
    in_v: Tensor
    second: Tensor | None

    def __add__(self, other: LayerDerivatives) -> LayerDerivatives:
        second = None if self.second is None or other.second is None else self.second + other.second
        return LayerDerivatives(
            self.value + other.value, self.in_u + other.in_u, self.in_v + other.in_v, second
        )

    def __sub__(self, other: LayerDerivatives) -> LayerDerivatives:
        second = None if other.second is None else -other.second
        return self + LayerDerivatives(-other.value, -other.in_u, -other.in_v, second)


@dataclasses.dataclass(frozen=True, eq=False)
class ReadOut:
    """What the risk needs of one layer in every context, each (run, n): q, ‖a‖², a·t, V2, ‖a -
    t‖² + noise.
    """

    score_variance: Tensor
    size: Tensor
    agreement: Tensor
    spread: Tensor
    limit: Tensor


def is_softmax(kind: type[Attention]) -> bool:
    """Whether a kind of attention is softmax; anything but softmax or linear
    attention is refused.
    """
    if not (isinstance(kind, type) and issubclass(kind, SoftmaxAttention | LinearAttention)):
        raise InvalidArgumentError(
            "kind", validation.text(kind), "SoftmaxAttention or LinearAttention"
        )
    return issubclass(kind, SoftmaxAttention)


def move(covariance: Tensor, u: Tensor) -> Tensor:
    """Γ_i u_i for covariance (n, D, D) or a common (1, D, D), and u (run, n, D)."""
    return (
        u @ covariance[0] if len(covariance) == 1 else torch.einsum("nij,rnj->rni", covariance, u)
    )


def read_out(U: Tensor, V: Tensor, contexts: Contexts) -> ReadOut:
    """With u = Uz: q = u^TΓu, a = VΓu, V2 = tr VΓV^T, t the target; U (run, D, D), V
    (run, o, D).
    """
    u = contexts.query @ U.mT  # (run, n, D)
    moved = move(contexts.covariance, u)  # Γu
    read = moved @ V.mT  # a
    spread = torch.einsum("nij,rij->rn", contexts.covariance, V.mT @ V).expand(moved.shape[:-1])
    return ReadOut(
        (u * moved).sum(-1).clamp_min(0.0),
        read.square().sum(-1),
        (read * contexts.target).sum(-1),
        spread,
        contexts.noise + (read - contexts.target).square().sum(-1),
    )


def covered_tables(
    lengths: Sequence[float], q: Tensor, most: float = LARGEST_SCORE_VARIANCE
) -> WeightTables:
    """Tables of the weight moments that reach every score variance in q, shape (length, n), none
    above ``most``.
    """
    largest = float(q.detach().max())
    check_scores(largest, most)
    return WeightTables.reaching(lengths, largest)


def finite_length_excess(
    read: ReadOut,
    lengths: Sequence[float],
    kind: type[Attention],
    *,
    most: float = LARGEST_SCORE_VARIANCE,
) -> Tensor:
    """Twice what a finite length adds to the conditional risk, shape (run, n): (risk.2-3) of
    docs/mathematics/regression.md.
    """
    q = read.score_variance
    if not is_softmax(kind):
        return q.new_tensor([1 / length for length in lengths]).unsqueeze(-1) * (
            read.spread * q + read.size
        )
    finite = [i for i, length in enumerate(lengths) if math.isfinite(length)]
    if not finite:
        return torch.zeros_like(q)
    f, h = covered_tables([lengths[i] for i in finite], q[finite], most)(q[finite])
    excess = f * (read.spread - read.size + 2 * read.agreement)[finite] - 6 * h * read.size[finite]
    return (
        excess
        if len(finite) == len(lengths)
        else torch.zeros_like(q).index_copy(0, torch.tensor(finite), excess)
    )


def context_risk(
    U: Tensor, V: Tensor, contexts: Contexts, lengths: Sequence[float], kind: type[Attention]
) -> Tensor:
    """Population risk ½ E‖read-out - answer‖² of each run, shape (run,), averaged over the
    contexts.
    """
    read = read_out(U, V, contexts)
    return ((read.limit + finite_length_excess(read, lengths, kind)) * contexts.weight).sum(-1) / 2
