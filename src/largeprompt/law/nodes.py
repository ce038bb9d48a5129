"""Block expectations of laws that are sums over real nodes of the score: atoms, mixtures of Gaussians, the sphere.

A node j has probability p_j, score s_j and moments of the token given it, and G_a[f] = Σ_j p_j E_j[f] e^{a(τ+s_j) - e^{τ+s_j}}:
terms without cancellation, however far apart the scores. As E[f e^s] = 0 for the functions that G_1 serves, the factor e^{-t e^s}
may be less e^{-t} there, and keeps its digits where t is small or the scores are near each other.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.devices import computed_on_cpu
from largeprompt.errors import InvalidArgumentError
from largeprompt.law.blocks import FLAT, STEP, Blocks, OutputMoments, Piece, grid, output_moments
from largeprompt.law.quadrature import NOTHING, Range, drawn, log_survival, relative_ends, widen
from largeprompt.law.score_nodes import ELEMENTS, MOST_LEVELS, Nodes, score_nodes
from largeprompt.law.tokens import Array, TokenMoments
from largeprompt.measures import Measure

LOPSIDED = 1e3  # beyond, one form of G_1 is surely the worse
LATEST = 3.4  # τ beyond which e^{-t} is nothing
NEGLIGIBLE = 42.0  # -log of what counts as nothing
RARE = 65.0  # -log of the probability of prompts that are left out, which may be all that errs in a part of the output
AT_ONCE = 512  # scores, for each τ: what stays in the cache


def _grown(tau: Tensor, scores: Tensor) -> Tensor:
    """t e^s, shape (..., τ, node)."""
    return torch.exp((tau.unsqueeze(-1) + scores.unsqueeze(-2)).clamp_max(300.0))


def _exponentials(tau: Tensor, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """t e^s, e^{-t e^s}, and e^{-t e^s} - e^{-t}, small where s is."""
    grown, t = _grown(tau, scores), torch.exp(tau.clamp_max(300.0)).unsqueeze(-1)
    apart = torch.exp(-t) * torch.expm1((-t * torch.expm1(scores.unsqueeze(-2))).clamp_max(300.0))
    return grown, torch.exp(-grown), apart


def _sums(grown: Tensor, survival: Tensor, apart: Tensor, mass: Tensor) -> Tensor:
    """1 - φ, φ, and the sizes of both forms of G_1: shape (4, ..., τ)."""
    return torch.stack([-torch.expm1(-grown) @ mass, survival @ mass, (grown * apart.abs()) @ mass, (grown * survival) @ mass])


def _near(tau: Tensor, sums: Tensor) -> Tensor:
    """Where e^s (e^{-t e^s} - e^{-t}) is the better form for G_1; for small t that is, unless a rare score makes up Σ p e^s = 1."""
    return (tau < LATEST) & (sums[2] < torch.where(tau < 0, LOPSIDED, 1.0) * sums[3])


def _kernel(order: int, grown: Tensor, survival: Tensor, mass: Tensor) -> Tensor:
    """Σ over its last axis times E_j f is G_order[f]."""
    return mass * grown.clamp_max(1e4) ** order * survival  # nothing survives beyond


def _first_kernel(grown: Tensor, survival: Tensor, apart: Tensor, mass: Tensor, near: Tensor) -> Tensor:
    """The same for G_1, by the better of its forms."""
    return torch.where(near.unsqueeze(-1), mass * grown * apart, _kernel(1, grown, survival, mass))


def score_range(log_mass: Tensor, scores: Tensor, shortest: float, longest: float, rare: float = NEGLIGIBLE) -> Range:
    """τ from where L t² E e^{2s}, of E Σ w² >= 1/L, is nothing to where every token has e^{-t e^s} of nothing, or φ^{L-2} is.

    The latter are nothing below e^{-rare}. ``scores`` may have a batch dimension in front, of which the slowest to vanish counts.
    """
    used = torch.isfinite(log_mass)
    log_mass, scores = log_mass[used], scores[..., used].reshape(-1, int(used.sum()))
    pair, top = float(torch.logsumexp(log_mass + 2 * scores, -1).max()), max(0.0, float(scores.max()))
    below = NEGLIGIBLE / 2 + math.log(longest) + min(max(pair, 0.0) / 2, top)  # pair is large where rare tokens have large scores
    lowest = scores.amin(0)
    likely = log_mass > log_mass.max() - NEGLIGIBLE
    end = 4.0 + max(0.0, -float(lowest[likely].min()))
    for above in np.arange(end, 0.0, -1.0) if end < MOST_LEVELS else ():  # from the right: between far scores there is nothing too
        grown = torch.exp((above + lowest).clamp_max(300.0))
        kept = float(torch.logsumexp(log_mass - grown, 0))
        if float((log_mass + 2 * (above + lowest) - grown).max()) + (shortest - 2) * kept + 2 * math.log(longest) > -rare:
            break
        end = float(above)
    return below, end


def _blocks(groups: Sequence[Nodes], grid: Array) -> Blocks:
    """Blocks on a grid of τ from groups of nodes."""
    tau = torch.from_numpy(grid)

    def parts() -> Iterator[tuple[slice, Tensor, Tensor, TokenMoments]]:
        for log_mass, scores, moments in groups:
            rows = max(1, ELEMENTS // len(scores))
            for start in range(0, len(tau), rows):
                part = slice(start, min(start + rows, len(tau)))
                yield part, torch.from_numpy(scores), torch.from_numpy(np.exp(log_mass)), moments

    sums = torch.zeros(4, len(tau), dtype=torch.float64)
    for rows, scores, mass, _ in parts():
        sums[:, rows] += _sums(*_exponentials(tau[rows], scores), mass)
    near = _near(tau, sums)

    def pieces(order: int) -> Iterator[Piece]:
        for rows, scores, mass, moments in parts():
            if order == 1:
                kernel = _first_kernel(*_exponentials(tau[rows], scores), mass, near[rows])
            else:
                grown = _grown(tau[rows], scores)
                kernel = _kernel(order, grown, torch.exp(-grown), mass)
            yield Piece(rows, kernel.numpy(), moments)

    return Blocks(np.maximum(log_survival(*sums[:2].numpy()), NOTHING), pieces)


def node_moments(mu: Measure, tilts: Tensor, lengths: Sequence[float]) -> list[OutputMoments]:
    """Law of attention over several lengths, 1 < L < ∞, of a law with nodes along the tilts, shape (n, d)."""
    known = zip(tilts, mu.tilted_mean(tilts).numpy(), mu.cgf(tilts).tolist(), strict=True)
    return [_along(mu, u, limit, cgf, lengths) for u, limit, cgf in known]


def _along(mu: Measure, u: Tensor, limit: Array, cgf: float, lengths: Sequence[float]) -> OutputMoments:
    """The same for one tilt, of limit ∇Λ(u) and cgf Λ(u)."""

    def build(below: float, above: float) -> Blocks:
        return _blocks(score_nodes(mu, u, limit, cgf, below), grid(below, above))

    groups = score_nodes(mu, u, limit, cgf, 0.0)
    log_mass, scores = (torch.from_numpy(np.concatenate([group[i] for group in groups])) for i in (0, 1))
    start = score_range(log_mass, scores, min(lengths), max(lengths), RARE + _fall(groups))
    return output_moments(build, lengths, start, 14.0, mu.dim)


def _fall(groups: Sequence[Nodes]) -> float:
    """How far log E_ζ y² falls between ζ = 0 and 2, in the coordinate where it falls most: by 4u for a sign."""
    highest = max(float(scores.max()) for _, scores, _ in groups)
    squares, mass = np.zeros((2, groups[0][2].mean.shape[-1])), np.zeros((2, 1))
    for log_mass, scores, moments in groups:
        weights = np.exp(np.stack([log_mass, log_mass + 2 * (scores - highest)]))
        squares += np.diagonal(moments.total_second(weights), axis1=1, axis2=2)
        mass += weights.sum(1, keepdims=True)
    varying = squares[0] > FLAT * squares[0].sum()
    first, last = np.log(np.maximum(squares / mass, 1e-300))
    return max(0.0, float(np.where(varying, first - last, 0.0).max()))


def _squares(scores: Tensor, probabilities: Tensor, features: Tensor, extra: Tensor, length: float) -> tuple[Tensor, ...]:
    """Gradients of the mean square of :func:`feature_moments` in scores, features and extra, without a graph.

    Σ_τ Lφ^{L-1} G_2[‖c‖² + e] + L(L-1)φ^{L-2} ‖G_1[c]‖², term by term: G_a' = aG_a - G_{a+1} and φ' = -G_1 in each score.
    """
    log_mass = torch.log(probabilities)
    scores = scores - torch.logsumexp(scores + log_mass, -1, keepdim=True)
    sizes = features.square().sum(-1) + extra

    def evaluate(ranges: Sequence[Range]) -> tuple[tuple[Tensor, ...], Array]:
        tau = torch.from_numpy(grid(*ranges[0]))
        grown = _grown(tau, scores)
        survival = torch.exp(-grown) * probabilities
        log_phi = log_survival((-torch.expm1(-grown)) @ probabilities, survival.sum(-1))
        first = (grown := grown.clamp_max(1e4)) * survival  # (..., τ, j), nothing survives beyond
        second = grown * first
        read, spread = first @ features, (second @ sizes.unsqueeze(-1)).squeeze(-1)
        once, twice, thrice = (drawn(length, k, log_phi, STEP) for k in (1, 2, 3))
        square = read.square().sum(-1)
        along = 2 * twice.unsqueeze(-1) * read
        sums = torch.cat([along, -(twice * spread + thrice * square).unsqueeze(-1), once.unsqueeze(-1)], -1)  # (..., τ, o + 2)
        by_first, by_second = first.mT @ sums, second.mT @ sums  # (..., j, o + 2)
        by_third = ((grown * second).mT @ once.unsqueeze(-1)).squeeze(-1)
        in_scores = by_first[..., -2] + sizes * (2 * by_second[..., -1] - by_third)
        in_scores = in_scores + (features * (by_first - by_second)[..., :-2]).sum(-1)
        in_extra = by_second[..., -1]
        in_features = 2 * features * in_extra.unsqueeze(-1) + by_first[..., :-2]
        return (in_scores, in_features, in_extra), relative_ends((once * spread + twice * square).movedim(-1, 0).numpy())

    return widen(evaluate, [score_range(log_mass, scores, length, length)])


class _MeanSquare(torch.autograd.Function):
    """The mean square of :func:`feature_moments`, with its gradient by formula, few queries at a time."""

    @staticmethod
    def forward(ctx, scores, probabilities, features, extra, length):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(scores, probabilities, features, extra)
        ctx.length = length
        parts = zip(*(part.split(max(1, AT_ONCE // scores.shape[-1])) for part in (scores, features, extra)), strict=True)
        return torch.cat([feature_moments(s, probabilities, c, length, extra=e)[1] for s, c, e in parts])

    @staticmethod
    def backward(ctx, out):  # type: ignore[no-untyped-def]
        scores, probabilities, features, extra = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient will be differentiated
            square = feature_moments(scores, probabilities, features, ctx.length, extra=extra)[1]
            moving = [part for part in (scores, features, extra) if part.requires_grad]
            slopes = iter(torch.autograd.grad(square, moving, out, create_graph=True))
            s, c, e = (next(slopes) if part.requires_grad else None for part in (scores, features, extra))
            return s, None, c, e, None
        parts = zip(*(part.split(max(1, AT_ONCE // scores.shape[-1])) for part in (scores, features, extra)), strict=True)
        found = [_squares(s, probabilities, c, e, ctx.length) for s, c, e in parts]
        s, c, e = (torch.cat(each) for each in zip(*found, strict=True))
        return out.unsqueeze(-1) * s, None, out[:, None, None] * c, out.unsqueeze(-1) * e, None


def mean_squares(scores: Tensor, probabilities: Tensor, features: Tensor, extra: Tensor, length: float) -> Tensor:
    """The second of :func:`feature_moments`, shape (n,), of many queries: scores (n, j), features (n, j, o), extra (n, j)."""
    return _MeanSquare.apply(scores, probabilities, features, extra, length)  # type: ignore[no-any-return, no-untyped-call]


@computed_on_cpu
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
        L, from 1 to 10^15; it need not be whole.
    extra
        e_j, shape (..., j); nothing when left out.

    Returns
    -------
    tuple of Tensor
        The mean and the mean square.

    Examples
    --------
    Two fair signs with tilt ½ are read as 1, as -1, or as tanh ½ when they differ:

    >>> from largeprompt.law import feature_moments
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
    length = validation.number("length", length)
    if not 1 <= length <= validation.LONGEST:
        raise InvalidArgumentError("length", f"{length:g}", "a number from 1 to 10^15")
    log_mass = torch.where(probabilities > 0, torch.log(probabilities.clamp_min(1e-300)), -math.inf)
    scores = scores - torch.logsumexp(scores + log_mass, -1, keepdim=True)
    limit = (probabilities * torch.exp(scores)).unsqueeze(-2) @ features  # (..., 1, o)
    centred = features - limit
    sizes = centred.square().sum(-1) if extra is None else centred.square().sum(-1) + extra

    def evaluate(ranges: Sequence[Range]) -> tuple[tuple[Tensor, Tensor], Array]:
        tau = torch.from_numpy(grid(*ranges[0]))
        exponentials = _exponentials(tau, scores)
        sums = _sums(*exponentials, probabilities)
        near = _near(tau, sums.detach())
        first = _first_kernel(*exponentials, probabilities, near) @ centred  # (..., τ, o)
        second = (_kernel(2, *exponentials[:2], probabilities) @ sizes.unsqueeze(-1)).squeeze(-1)
        once, twice = (drawn(length, k, log_survival(sums[0], sums[1]), STEP) for k in (1, 2))
        bias, square = once.unsqueeze(-1) * first, once * second + twice * first.square().sum(-1)
        ends = [relative_ends(part.detach().movedim(axis, 0).numpy()) for part, axis in ((bias, -2), (square, -1))]
        return (bias.sum(-2), square.sum(-1)), np.maximum(*ends)

    bias, square = widen(evaluate, [score_range(log_mass.detach(), scores.detach(), length, length)])
    limit = limit.squeeze(-2)
    return limit + bias, square + (limit * (2 * bias + limit)).sum(-1)
