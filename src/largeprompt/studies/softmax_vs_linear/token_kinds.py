"""The mean squared error of a softmax read-out over tokens of several kinds, differentiable, at a
cost that does not depend on L.

Formula (quad.11) of docs/mathematics/quadrature.md. The integrals are those of G_{ka} and of
products G_{ka} G_{jb} alone: values enter afterwards, so that one set of integrals serves many
read-outs. A kind of level ℓ_k = -∞ is silent: it is not read unless a prompt holds nothing else.
"""

import dataclasses
import math
from statistics import NormalDist
from typing import NamedTuple, Self

import torch
from torch import Tensor

from largeprompt.law.quadrature import drawn, log_survival
from largeprompt.law.weights import WIDE
from largeprompt.studies.softmax_vs_linear.lattice import check_scores, integrate, kind

CONDITIONS_AT_ONCE = 512


@dataclasses.dataclass(frozen=True, eq=False)
class ReadOutKinds:
    """What each kind of token brings to the score and to the read-out, in n settings at once.

    Attributes
    ----------
    probability
        π_k, shape (K,), summing to one.
    level
        ℓ_k, shape (n, K); a column of -∞ silences its kind.
    variance
        σ_k², shape (n, K).
    offset
        ζ_k, mean of the value less the target, shape (..., n, K, o): leading dimensions are
        read-outs of the same weights.
    tilt
        a_k, covariance of value and score, shape (..., n, K, o).
    spread
        v_k, total variance of the value, shape (..., n, K).
    """

    probability: Tensor
    level: Tensor
    variance: Tensor
    offset: Tensor
    tilt: Tensor
    spread: Tensor

    def keep(self, chosen: list[int]) -> Self:
        """These kinds alone, their probabilities as they are."""
        kept = {
            name: getattr(self, name)[..., chosen]
            for name in ("probability", "level", "variance", "spread")
        }
        return dataclasses.replace(
            self, **kept, offset=self.offset[..., chosen, :], tilt=self.tilt[..., chosen, :]
        )


class KindMoments(NamedTuple):
    """Integrals over tokens of kinds 1..K: ``single`` (n, K, 3) with a = 2, 3, 4, and ``pairs`` (n,
    2K, 2K).

    single_ka = L ∫ φ^{L-1} π_k G_{ka} dτ, and with g = (π_1 G_{11}, .., π_K G_{K1}, π_1 G_{12}, ..,
    π_K G_{K2}) pairs_ij = L(L-1) ∫ φ^{L-2} g_i g_j dτ.
    """

    single: Tensor
    pairs: Tensor

    def error(self, offset: Tensor, tilt: Tensor, spread: Tensor) -> Tensor:
        """E‖Σ_l w_l r_l‖² for values of the kinds, shape (..., n); offset and tilt (..., n, K, o),
        spread (..., n, K).
        """
        vectors = torch.cat([offset + tilt, -tilt], -2)  # (..., n, 2K, o)
        size, agreement, square = (
            (x * y).sum(-1) for x, y in ((offset, offset), (offset, tilt), (tilt, tilt))
        )
        c2, c3, c4 = self.single.unbind(-1)
        once = (
            (size + spread) * c2 + 2 * agreement * (2 * c2 - c3) + square * (4 * c2 - 5 * c3 + c4)
        )
        return once.sum(-1) + (self.pairs * (vectors @ vectors.mT)).sum((-2, -1))


def kind_moments(
    length: float, probability: Tensor, level: Tensor, variance: Tensor
) -> KindMoments:
    """The integrals for 1 < L < ∞; probability (K,), positive; level and variance (n, K).

    Probabilities may sum to less than one: the other tokens are silent, and prompts of silent
    tokens alone do not count.
    """
    check_scores(level, variance)
    widest = variance.detach().amax(-1)
    order, groups, edges = (
        torch.argsort(widest),
        [],
        widest.new_tensor([WIDE**2, 1.0, 4.0, 16.0, 64.0, 256.0]),
    )
    octave = torch.searchsorted(edges, widest[order])
    # neighbouring variances together: a lattice as wide as each group needs
    for one in octave.unique():
        for chosen in order[octave == one].split(CONDITIONS_AT_ONCE):
            groups.append(
                (chosen, _integrals(length, probability, level[chosen], variance[chosen]))
            )
    back = torch.argsort(torch.cat([chosen for chosen, _ in groups]))
    single, pairs = (
        torch.cat(each)[back] for each in zip(*(moments for _, moments in groups), strict=True)
    )
    return KindMoments(single, pairs)


def _integrals(length: float, pi: Tensor, level: Tensor, variance: Tensor) -> KindMoments:
    count_kinds, rest = len(pi), max(0.0, 1 - float(pi.sum()))
    upper = torch.triu_indices(2 * count_kinds, 2 * count_kinds)

    def integrands(start: float, count: int) -> list[Tensor]:
        blocks = [kind(start, count, level[:, k], variance[:, k], 4) for k in range(count_kinds)]
        lost = sum(
            (p * block.lost for p, block in zip(pi, blocks, strict=True)),
            torch.zeros((), dtype=torch.float64),
        )
        kept = sum(
            (p * block.kept for p, block in zip(pi, blocks, strict=True)),
            torch.full((), rest, dtype=torch.float64),
        )
        log_phi = log_survival(lost, kept)
        once, twice = (drawn(length, k, log_phi) for k in (1, 2))
        g = [p * block.G[a] for a in (0, 1) for p, block in zip(pi, blocks, strict=True)]
        singles = [
            once * p * block.G[a] for p, block in zip(pi, blocks, strict=True) for a in (1, 2, 3)
        ]
        return singles + [twice * g[i] * g[j] for i, j in upper.T.tolist()]

    values = torch.stack(integrate(integrands, *_range(length, pi, level, variance)), -1)
    single, entries = values.split([3 * count_kinds, upper.shape[1]], -1)
    pairs = entries.new_zeros(len(level), 2 * count_kinds, 2 * count_kinds)
    pairs = pairs.index_put((torch.arange(len(level)).unsqueeze(-1), upper[0], upper[1]), entries)
    pairs = pairs + pairs.triu(1).mT
    return KindMoments(single.reshape(len(level), count_kinds, 3), pairs)


def softmax_error(length: float, kinds: ReadOutKinds) -> Tensor:
    """E‖Σ_l w_l r_l‖² of softmax weights over L tokens, shape (..., n)."""
    silent = [
        k for k in range(len(kinds.probability)) if bool(torch.isinf(kinds.level[:, k]).all())
    ]
    heard = [
        k
        for k in range(len(kinds.probability))
        if k not in silent and float(kinds.probability[k]) > 0
    ]
    rest = float(kinds.probability[silent].sum())
    if not heard:
        return softmax_error(
            length, dataclasses.replace(kinds, level=torch.zeros_like(kinds.level))
        )
    error = _error(length, kinds.keep(heard))
    alone = rest**length
    if alone > 0:  # prompts of silent tokens alone
        last = kinds.keep(silent)
        last = dataclasses.replace(
            last, probability=last.probability / rest, level=torch.zeros_like(last.level)
        )
        error = error + alone * _error(length, last)
    return error


def _error(length: float, kinds: ReadOutKinds) -> Tensor:
    """The same over prompts that hold a token of these kinds."""
    if length == 1:
        return (kinds.probability * (kinds.offset.square().sum(-1) + kinds.spread)).sum(-1)
    if math.isinf(length):
        share = torch.softmax(
            kinds.probability.log() + kinds.level + kinds.variance / 2, -1
        ).unsqueeze(-1)
        return (share * (kinds.offset + kinds.tilt)).sum(-2).square().sum(-1)
    # a common shift of the scores changes nothing
    level = kinds.level - kinds.level.detach().mean(-1, keepdim=True)
    moments = kind_moments(length, kinds.probability, level, kinds.variance)
    return moments.error(kinds.offset, kinds.tilt, kinds.spread)


def _range(length: float, pi: Tensor, level: Tensor, variance: Tensor) -> tuple[float, float]:
    """Where the integrands live: from -below to above, before any widening."""
    level, sigma = level.detach(), variance.detach().clamp_min(0).sqrt()
    top = (level + torch.minimum(1.5 * sigma**2, 10 * sigma)).max()
    below = 26 + math.log(length) + float(top.clamp_min(0))
    above = 5 + float((10.5 * sigma - level).max())
    likely = [k for k, p in enumerate(pi.tolist()) if length * p >= 200]
    if likely:
        # 1 - φ >= π_k P(s_k > 0)(1 - 1/e), so φ^{L-2} < e^{-45} once π_k Φ((τ + ℓ_k)/σ_k) exceeds
        # 80/L for some k
        quantiles = sigma.new_tensor(
            [NormalDist().inv_cdf(80 / (length * float(pi[k]))) for k in likely]
        )
        above = min(
            above, 1 + float((sigma[:, likely] * quantiles - level[:, likely]).amin(-1).max())
        )
    return below, max(above, 20 - below)


def linear_error(length: float, kinds: ReadOutKinds, target: Tensor) -> Tensor:
    """E‖(1/L) Σ_l s_l r_l - t‖² of linear attention, the scores s_l themselves for weights, shape
    (n,); t (n, o).

    With r = ζ + t of mean ρ, E s r = ℓρ + a and E s²‖r‖² = σ²v + 2‖a‖² + σ²‖ρ‖² + ℓ²v + 4ℓρ·a +
    ℓ²‖ρ‖².
    """
    rho, a = kinds.offset + target.unsqueeze(-2), kinds.tilt
    level, q, spread = kinds.level, kinds.variance, kinds.spread
    mean = (kinds.probability.unsqueeze(-1) * (level.unsqueeze(-1) * rho + a)).sum(-2)
    size, agreement, square = ((x * y).sum(-1) for x, y in ((rho, rho), (rho, a), (a, a)))
    second = (
        kinds.probability * ((q + level**2) * (spread + size) + 2 * square + 4 * level * agreement)
    ).sum(-1)
    limit = (mean - target).square().sum(-1)
    return limit if math.isinf(length) else limit + (second - mean.square().sum(-1)) / length
