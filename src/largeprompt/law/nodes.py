"""Blocks of a law whose score has real nodes: atoms, mixtures of Gaussians, the sphere.

A node j has probability p_j, score s_j and moments of the token given it, and G_a[f] = Σ_j p_j
E_j[f] e^{a(τ+s_j) - e^{τ+s_j}}: all terms of G_2 are positive, and nothing cancels, however far
apart the scores are.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from largeprompt.law.blocks import CACHED, TAU_STEP, Blocks, Piece, grid, widened
from largeprompt.law.quadrature import LARGEST_EXPONENT, Range, log_survival
from largeprompt.law.tokens import Array, Common, TokenMoments
from largeprompt.measures import Measure
from largeprompt.measures.score_nodes import HasScoreNodes

NEGLIGIBLE = 42.0  # -log of what counts as nothing, 6e-19
LARGEST_LOG = 150.0  # of numbers whose fourth powers must not overflow
MOST_LEVELS = 10_000  # of τ that are looked at for the end of its range
WIDER = 14.0  # by how much τ goes on where something is left at its end


def score_range(log_mass: Tensor, scores: Tensor, shortest: float, longest: float) -> Range:
    """τ from where L t² E e^{2s}, of E Σ w² >= 1/L, is nothing to where every token has e^{-t e^s}
    of nothing, or φ^{L-2} is.

    ``scores`` may have a batch dimension in front, of which the slowest to vanish counts.
    """
    used = torch.isfinite(log_mass)
    log_mass, scores = log_mass[used], scores[..., used].reshape(-1, int(used.sum()))
    pair, top = (
        float(torch.logsumexp(log_mass + 2 * scores, -1).max()),
        max(0.0, float(scores.max())),
    )
    # pair is large where rare tokens have large scores
    below = NEGLIGIBLE / 2 + math.log(longest) + min(max(pair, 0.0) / 2, top)
    lowest = scores.amin(0)
    likely = log_mass > log_mass.max() - NEGLIGIBLE
    end = 4.0 + max(0.0, -float(lowest[likely].min()))
    # from the right: between far scores there is nothing too
    for above in np.arange(end, 0.0, -1.0) if end < MOST_LEVELS else ():
        grown = torch.exp((above + lowest).clamp_max(LARGEST_LOG))
        kept = float(torch.logsumexp(log_mass - grown, 0))
        if (
            float((log_mass + 2 * (above + lowest) - grown).max())
            + (shortest - 2) * kept
            + 2 * math.log(longest)
            > -NEGLIGIBLE
        ):
            break
        end = float(above)
    return below, end


Group = tuple[Array, Array, TokenMoments]  # p_j, s_j less Λ(u), and the moments of y at each


def _blocks(groups: Sequence[Group], tau: Array, dim: int) -> Blocks:
    """Blocks on a grid of τ from groups of nodes."""

    def parts() -> Iterator[tuple[slice, Array, Array, TokenMoments]]:
        """Rows of τ, t e^s of shape (row, node), the masses and the moments at the nodes."""
        for mass, scores, moments in groups:
            rows = max(1, CACHED // len(scores))
            for start in range(0, len(tau), rows):
                part = slice(start, min(start + rows, len(tau)))
                yield part, np.exp(np.minimum(tau[part, None] + scores, LARGEST_LOG)), mass, moments

    lost, kept = np.zeros((2, len(tau)))  # 1 - φ and φ
    for rows, grown, mass, _ in parts():
        lost[rows] += -np.expm1(-grown) @ mass
        kept[rows] += np.exp(-grown) @ mass

    def pieces(order: int) -> Iterator[Piece]:
        for rows, grown, mass, moments in parts():
            yield Piece(rows, mass * grown**order * np.exp(-grown), moments)

    return Blocks(np.full(len(tau), TAU_STEP), log_survival(lost, kept), pieces, dim)


def node_blocks(mu: Measure, u: Tensor, limit: Array, lengths: Sequence[float]) -> Blocks:
    """Blocks of a law with nodes along the tilt u, of limit T, for 1 < L < ∞."""
    assert isinstance(mu, HasScoreNodes)
    cgf = float(mu._cgf(u))

    def groups(below: float) -> list[Group]:
        nodes = mu._score_nodes(u, LARGEST_EXPONENT + below + cgf)
        return [
            (
                np.exp(n.log_mass),
                n.scores - cgf,
                Common(n.mean - limit, n.spread, n.scale, n.sphere),
            )
            for n in nodes
        ]

    def build(below: float, above: float) -> Blocks:
        return _blocks(groups(below), grid(below, above), mu.dim)

    known = mu._score_nodes(u, LARGEST_EXPONENT + cgf)
    log_mass, scores = (
        torch.from_numpy(np.concatenate([group[i] for group in known])) for i in (0, 1)
    )
    start = score_range(log_mass, scores - cgf, min(lengths), max(lengths))
    return widened(build, lengths, start, WIDER)
