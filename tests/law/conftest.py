"""Two slow and obvious references for the law of a finite prompt: all prompts listed, and tokens
drawn.
"""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch


def _attend(points, scores, counts):
    """Softmax attention over prompts given by how often each point occurs, shape (prompt, point):
    weights, output, covariance.
    """
    with np.errstate(divide="ignore"):
        exponents = np.log(counts) + scores
    weights = np.exp(exponents - exponents.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    gaps = points[:, None] - points  # covariances as sums over pairs have no cancellation
    spread = np.einsum("pk,pl,kli,klj->pij", weights, weights, gaps, gaps) / 2
    return weights, weights @ points, spread


@pytest.fixture
def listed():
    """Exact law of attention over L tokens of a small discrete law, by listing all prompts up to
    their order.
    """

    def law(points, masses, u, V, length, z=None):
        points, masses, u, V = (
            np.asarray(part, dtype=np.float64) for part in (points, masses, u, V)
        )
        size = float(np.square(np.asarray(u if z is None else z, dtype=np.float64)).sum())
        choices = list(itertools.combinations_with_replacement(range(len(points)), length))
        counts = np.array(
            [np.bincount(choice, minlength=len(points)) for choice in choices], dtype=np.float64
        )
        ways = np.array(
            [
                math.factorial(length) // math.prod(math.factorial(int(n)) for n in row)
                for row in counts
            ],
            dtype=np.float64,
        )
        chance = ways * np.prod(masses**counts, -1)
        weights, output, spread = _attend(points, points @ u, counts)
        _, limit, limit_spread = (part[0] for part in _attend(points, points @ u, masses[None]))
        error = output - limit
        read, total = error @ V.T, output @ V.T
        mean = chance @ total
        centered = total - mean
        collision = (weights**2 / np.maximum(counts, 1)).sum(-1)
        in_u = np.square(V @ (spread - limit_spread)).sum((-2, -1))
        return SimpleNamespace(
            limit=V @ limit,
            mean=mean,
            bias=chance @ read,
            covariance=np.einsum("p,pi,pj->ij", chance, centered, centered),
            mse=chance @ np.square(read).sum(-1),
            jacobian_v_mse=len(V) * (chance @ np.square(error).sum(-1)),
            jacobian_u_mse=size * (chance @ in_u),
            effective_tokens=1 / (chance @ collision),
        )

    return law


@pytest.fixture
def drawn_law():
    """Check mean, bias, covariance and the errors of a law against prompts drawn by the measure
    itself.

    Each of the comparisons fails by chance with probability 1e-9 (``assert_sample_mean``), some
    twenty for each law.
    """
    from largeprompt import Empirical
    from largeprompt.testing import assert_sample_mean

    def check(law, attention, mu, z, length, count=20_000, jacobian=True):
        tokens = mu.sample(count * length, torch.Generator().manual_seed(length)).reshape(
            count, length, mu.dim
        )
        prompts = Empirical(tokens)
        output = attention(prompts, z)
        centered = output - law.mean
        assert_sample_mean(output, law.mean)
        assert_sample_mean(centered[:, :, None] * centered[:, None, :], law.covariance)
        assert_sample_mean((output - law.limit).square().sum(-1), law.mse)
        weights = torch.softmax(tokens @ (attention.U @ z), -1)
        assert_sample_mean(weights.square().sum(-1), 1 / law.effective_tokens)
        if jacobian:
            error = attention.jacobian_u(prompts, z) - attention.jacobian_u(mu, z)
            assert_sample_mean(error.flatten(1).square().sum(-1), law.jacobian_u_mse)

    return check
