"""The mean square of a softmax read-out of features of L tokens with finitely many values, with its
gradient.

With weights w over L tokens, each of which is atom j with probability p_j, score s_j and features
c_j,

    E‖Σ w_l c_l‖² + E Σ w_l² e_l = L ∫ φ^{L-1} G_2[‖c‖² + e] dτ + L(L-1) ∫ φ^{L-2} ‖G_1[c]‖² dτ,

formula (quad.10) of docs/mathematics/quadrature.md.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from largeprompt.law.blocks import TAU_STEP, grid
from largeprompt.law.nodes import LARGEST_LOG, score_range
from largeprompt.law.quadrature import (
    Array,
    Range,
    falling_factorial_weight,
    log_survival,
    relative_ends,
    widen,
)

SCORES_AT_ONCE = 512  # scores, for each τ: what stays in the cache
DIFFERENCE = 1e-4  # of scores and features: its square is the error of second derivatives


def _kernels(
    tau: Tensor, scores: Tensor, probabilities: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """log φ, shape (..., τ), the kernels of G_1 and G_2, and t e^s, each (..., τ, j)."""
    grown = torch.exp((tau.unsqueeze(-1) + scores.unsqueeze(-2)).clamp_max(LARGEST_LOG))
    survival = torch.exp(-grown) * probabilities
    log_phi = log_survival(-torch.expm1(-grown) @ probabilities, survival.sum(-1))
    return log_phi, grown * survival, grown**2 * survival, grown


def _normalized(scores: Tensor, probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """Scores with E e^s = 1, and log p."""
    log_mass = probabilities.log()
    return scores - torch.logsumexp(scores + log_mass, -1, keepdim=True), log_mass


def _value(
    scores: Tensor, probabilities: Tensor, features: Tensor, extra: Tensor, length: float
) -> Tensor:
    """The mean square, shape (n,), by differentiable operations."""
    scores, log_mass = _normalized(scores, probabilities)
    limit = ((probabilities * torch.exp(scores)).unsqueeze(-2) @ features).squeeze(-2)  # (n, o)
    centered = features - limit.unsqueeze(-2)  # integrals of what is small keep their digits
    sizes = (centered.square().sum(-1) + extra).unsqueeze(-1)

    def evaluate(ranges: Sequence[Range]) -> tuple[tuple[Tensor, Tensor], Array]:
        log_phi, one, two, _ = _kernels(torch.from_numpy(grid(*ranges[0])), scores, probabilities)
        once, twice = (TAU_STEP * falling_factorial_weight(length, k, log_phi) for k in (1, 2))
        first = one @ centered
        bias = once.unsqueeze(-1) * first
        square = once * (two @ sizes).squeeze(-1) + twice * first.square().sum(-1)
        ends = [
            relative_ends(part.detach().movedim(axis, 0).numpy())
            for part, axis in ((bias, -2), (square, -1))
        ]
        return (bias.sum(-2), square.sum(-1)), np.maximum(*ends)

    bias, square = widen(evaluate, [score_range(log_mass, scores.detach(), length, length)])
    return square + (limit * (2 * bias + limit)).sum(-1)


def _gradient(
    scores: Tensor, probabilities: Tensor, features: Tensor, extra: Tensor, length: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Its gradients in scores, features and extra, term by term: G_a' = aG_a - G_{a+1} and φ' =
    -G_1 in each score.
    """
    scores, log_mass = _normalized(scores, probabilities)
    sizes = features.square().sum(-1) + extra

    def evaluate(ranges: Sequence[Range]) -> tuple[tuple[Tensor, Tensor, Tensor], Array]:
        log_phi, one, two, grown = _kernels(
            torch.from_numpy(grid(*ranges[0])), scores, probabilities
        )
        read, spread = one @ features, (two @ sizes.unsqueeze(-1)).squeeze(-1)
        once, twice, thrice = (
            TAU_STEP * falling_factorial_weight(length, k, log_phi) for k in (1, 2, 3)
        )
        square = read.square().sum(-1)
        along = 2 * twice.unsqueeze(-1) * read
        # (..., τ, o + 2)
        sums = torch.cat(
            [along, -(twice * spread + thrice * square).unsqueeze(-1), once.unsqueeze(-1)], -1
        )
        by_first, by_second = one.mT @ sums, two.mT @ sums  # (..., j, o + 2)
        by_third = ((grown * two).mT @ once.unsqueeze(-1)).squeeze(-1)
        in_scores = by_first[..., -2] + sizes * (2 * by_second[..., -1] - by_third)
        in_scores = in_scores + (features * (by_first - by_second)[..., :-2]).sum(-1)
        in_extra = by_second[..., -1]
        in_features = 2 * features * in_extra.unsqueeze(-1) + by_first[..., :-2]
        return (in_scores, in_features, in_extra), relative_ends(
            (once * spread + twice * square).movedim(-1, 0).numpy()
        )

    return widen(evaluate, [score_range(log_mass, scores, length, length)])


class _MeanSquares(torch.autograd.Function):
    """The value with its gradient by formula, few queries at a time."""

    @staticmethod
    def forward(ctx, scores, probabilities, features, extra, length):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(scores, probabilities, features, extra)
        ctx.length = length
        return torch.cat(
            [_value(s, probabilities, c, e, length) for s, c, e in _parts(scores, features, extra)]
        )

    @staticmethod
    def backward(ctx, out):  # type: ignore[no-untyped-def]
        scores, probabilities, features, extra = ctx.saved_tensors
        s, c, e = _Slopes.apply(scores, probabilities, features, extra, ctx.length)  # type: ignore[no-untyped-call]
        return out.unsqueeze(-1) * s, None, out[:, None, None] * c, out.unsqueeze(-1) * e, None


class _Slopes(torch.autograd.Function):
    """The gradient; its derivative along a direction by central differences, as a graph through
    every query would be large.
    """

    @staticmethod
    def forward(ctx, scores, probabilities, features, extra, length):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(scores, probabilities, features, extra)
        ctx.length = length
        found = [
            _gradient(s, probabilities, c, e, length) for s, c, e in _parts(scores, features, extra)
        ]
        return tuple(torch.cat(each) for each in zip(*found, strict=True))

    @staticmethod
    def backward(ctx, *ways):  # type: ignore[no-untyped-def]
        scores, probabilities, *others = ctx.saved_tensors
        point = (scores, *others)
        size = max(max(float(way.abs().max()) for way in ways), 1e-300)
        ends = []
        for step in (DIFFERENCE, -DIFFERENCE):
            s, c, e = (x + step / size * way for x, way in zip(point, ways, strict=True))
            ends.append(_Slopes.apply(s, probabilities, c, e, ctx.length))  # type: ignore[no-untyped-call]
        s, c, e = ((a - b) * (size / (2 * DIFFERENCE)) for a, b in zip(*ends, strict=True))
        return s, None, c, e, None


def _parts(*tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """So many queries of each tensor, of which scores come first, as stay in the cache."""
    count = max(1, SCORES_AT_ONCE // tensors[0].shape[-1])
    return list(zip(*(part.split(count) for part in tensors), strict=True))


def mean_squares(
    scores: Tensor, probabilities: Tensor, features: Tensor, extra: Tensor, length: float
) -> Tensor:
    """E‖Σ w_l c_l‖² + E Σ w_l² e_l, shape (n,), for scores (n, j), features (n, j, o) and extra (n,
    j); twice differentiable.
    """
    return _MeanSquares.apply(scores, probabilities, features, extra, length)  # type: ignore[no-any-return, no-untyped-call]
