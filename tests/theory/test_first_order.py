"""First order in 1/L: bias -(ρ/L)(∇Λ(2u) - ∇Λ(u)), covariance (ρ/L)[∇²Λ(2u) + δδ^T]: formulas
first.3-4.
"""

import math

import pytest
import torch

import largeprompt as lp

F = torch.float64
U = torch.tensor([0.55, -0.35], dtype=F)
SIGMAS = 6.5  # two-sided normal tail 8e-11; six entries in each of five cases stay below 1e-8

LAWS = {
    "gaussian": lp.Gaussian([0.3, 0.0], [[1.0, 0.3], [0.3, 0.8]]),
    "mixture": lp.GaussianMixture(
        [0.4, 0.6], [[1.0, 0.0], [-0.5, 0.5]], [[[0.5, 0.1], [0.1, 0.4]], [[0.3, 0.0], [0.0, 0.9]]]
    ),
    "rademacher": lp.Rademacher(2),
    "uniform": lp.Uniform(2),
    "sphere": lp.Sphere(2),
}


@pytest.mark.parametrize("name", LAWS)
def test_bias_and_covariance(name):
    mu, length, blocks, replicas = LAWS[name], 250, 30, 8000
    attention = lp.SoftmaxAttention(torch.eye(2, dtype=F), torch.eye(2, dtype=F))
    generator = torch.Generator().manual_seed(5)
    limit = attention(mu, U)
    rho = math.exp(float(mu.cgf(2 * U) - 2 * mu.cgf(U)))
    shift = mu.tilted_mean(2 * U) - limit
    deviation = torch.cat(
        [
            attention(
                lp.Empirical(mu.sample(replicas * length, generator).reshape(replicas, length, 2)),
                U,
            )
            - limit
            for _ in range(blocks)
        ]
    )  # (n, d)
    bias, count = -rho / length * shift, len(deviation)
    second = rho / length * (mu.tilted_covariance(2 * U) + torch.outer(shift, shift))
    # what the next order in 1/L may change, relative to the largest entry
    next_order = 6 * rho / length
    for samples, predicted in (
        (deviation, bias),
        (deviation[:, :, None] * deviation[:, None, :], second),
    ):
        error = samples.std(0) / math.sqrt(count)
        allowed = SIGMAS * error + next_order * predicted.abs().max()
        assert bool(((samples.mean(0) - predicted).abs() <= allowed).all())
        # and the test can fail: no prediction, or one twice as large, is refused
        assert bool(((samples.mean(0) - 0 * predicted).abs() > allowed).any())
        assert bool(((samples.mean(0) - 2 * predicted).abs() > allowed).any())
