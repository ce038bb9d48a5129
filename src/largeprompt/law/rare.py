"""Mean and covariance of attention over few tokens, where rare tokens that a prompt seldom has make up the limit.

The mean as limit plus bias, and the covariance as second moment less the square of the bias, keep no digits there. With x not less
the limit, m = E T_L and all terms of one sign,

    E T_L = L ∫ φ^{L-1} G_1[x] dτ,   Cov T_L = L ∫ φ^{L-1} G_2[(x-m)(x-m)^T] dτ + L(L-1) ∫ φ^{L-2} G_1[x-m] G_1[x-m]^T dτ:

formula (engine.8) of docs/mathematics/engine.md, over the nodes of :mod:`largeprompt.law.score_nodes`.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from largeprompt.law.blocks import STEP, grid
from largeprompt.law.nodes import NEGLIGIBLE, score_range
from largeprompt.law.quadrature import NOTHING, drawn, log_survival
from largeprompt.law.score_nodes import DEEPEST, score_nodes
from largeprompt.law.tokens import Array
from largeprompt.measures import Measure
from largeprompt.measures.finite.atoms import AtomicMeasure

MOST_GROWN = 1e4  # nothing survives beyond


def plain_moments(mu: Measure, u: Tensor, lengths: Sequence[float]) -> tuple[Array, Array]:
    """E T_L, shape (length, d), and Cov T_L, (length, d, d), of a law with nodes, 1 < L < ∞."""
    groups = score_nodes(mu, u, None, float(mu.cgf(u)), 0.0)
    log_mass, scores = (torch.from_numpy(np.concatenate([group[i] for group in groups])) for i in (0, 1))
    _, above = score_range(log_mass, scores, min(lengths), max(lengths))
    highest = float(scores[log_mass > -DEEPEST].max())
    tau = grid(NEGLIGIBLE + max(highest, math.log(max(lengths))), above)  # G_1 falls like t alone
    sums, first, one = np.zeros((2, len(tau))), np.zeros((len(tau), mu.dim)), np.zeros(len(tau))
    kernels = []
    for log_p, s, moments in groups:
        p, grown = np.exp(log_p), np.exp(np.minimum(tau[:, None] + s, 300.0))
        sums += np.stack([-np.expm1(-grown) @ p, np.exp(-grown) @ p])
        kernel = np.minimum(grown, MOST_GROWN) * np.exp(-grown) * p  # (τ, node)
        first, one = first + kernel @ moments.mean, one + kernel.sum(-1)
        kernels.append((kernel * np.minimum(grown, MOST_GROWN), moments))
    log_phi, tokens = np.maximum(log_survival(*sums), NOTHING), np.array(lengths)[:, None]
    once, twice = (drawn(tokens, k, log_phi, STEP) for k in (1, 2))
    means = once @ first
    spreads = np.zeros((len(lengths), mu.dim, mu.dim))
    for row, mean in enumerate(means):
        read = first - one[:, None] * mean
        spreads[row] = (twice[row][:, None] * read).T @ read
        for kernel, moments in kernels:
            weights, moved = once[row] @ kernel, moments.mean - mean
            spreads[row] += (weights[:, None] * moved).T @ moved + moments.total_spread(weights[None])[0]
    return means, spreads


def own_covariance(mu: Measure) -> Array:
    """Cov of one token; of atoms around their mean, as the mean may be all but one of them."""
    if not isinstance(mu, AtomicMeasure):
        return mu.covariance.numpy()
    points = mu.points.numpy()
    mass = np.full(len(points), 1 / len(points)) if mu.weights is None else mu.weights.numpy()
    moved = points - mass @ points
    return np.asarray((mass[:, None] * moved).T @ moved)
