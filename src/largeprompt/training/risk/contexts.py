"""The risk where tokens are Gaussian given a context: an average over contexts of two moments of
the softmax weights.
"""

import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from largeprompt.attention import Attention
from largeprompt.law.table import WeightTables
from largeprompt.training.risk.scores import check_scores, is_softmax


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


def context_risk(
    U: Tensor, V: Tensor, contexts: Contexts, lengths: Sequence[float], kind: type[Attention]
) -> Tensor:
    """Population risk of each run, shape (run,): (risk.2-3) of docs/mathematics/regression.md.

    With u = Uz: q = u^TΓu, a = VΓu and V2 = tr VΓV^T; U (run, D, D), V (run, o, D).
    """
    u, gamma, target = contexts.query @ U.mT, contexts.covariance, contexts.target
    moved = u @ gamma[0] if len(gamma) == 1 else torch.einsum("nij,rnj->rni", gamma, u)
    a = moved @ V.mT
    q, size = (u * moved).sum(-1).clamp_min(0.0), a.square().sum(-1)
    spread = torch.einsum("nij,rij->rn", gamma, V.mT @ V).expand(q.shape)
    twice = contexts.noise + (a - target).square().sum(-1)
    if is_softmax(kind):
        finite = [i for i, length in enumerate(lengths) if math.isfinite(length)]
        if finite:
            largest = float(q.detach().max())
            check_scores(largest)
            f, h = WeightTables.reaching([lengths[i] for i in finite], largest)(q[finite])
            both = (spread - size + 2 * (a * target).sum(-1))[finite]
            more = f * both - 6 * h * size[finite]
            twice = twice.index_add(0, torch.tensor(finite), more)
    else:
        inverse = q.new_tensor([1 / length for length in lengths]).unsqueeze(-1)
        twice = twice + inverse * (spread * q + size)
    return (twice * contexts.weight).sum(-1) / 2
