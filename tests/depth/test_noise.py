"""The band in depth, against autodiff of the whole nonlinear system on quadrature nodes, and
against the one-layer law.
"""

import math

import numpy as np
import pytest
import torch

import largeprompt as lp

F = torch.float64


def nodes(dim, count):
    """Gauss-Hermite grid of N(0, I): points (n, dim) and weights (n,)."""
    x, w = np.polynomial.hermite_e.hermegauss(count)
    grid = torch.cartesian_prod(*[torch.from_numpy(x)] * dim).reshape(-1, dim)
    mass = torch.cartesian_prod(*[torch.from_numpy(w / w.sum())] * dim).reshape(-1, dim).prod(-1)
    return grid, mass


def stack_and_law(dim, layers, seed=0, score=0.2, value=0.5):
    generator = torch.Generator().manual_seed(seed)
    U, V = (
        torch.randn(layers, dim, dim, generator=generator, dtype=F) / math.sqrt(dim)
        for _ in range(2)
    )
    root = torch.eye(dim, dtype=F) + 0.2 * torch.randn(dim, dim, generator=generator, dtype=F)
    mean = 0.3 * torch.randn(dim, generator=generator, dtype=F)
    return lp.depth.ResidualStack(score * U, value * V), lp.Gaussian(mean, root @ root.mT)


def by_autodiff(stack, mu, count):
    """L times the squared errors, from derivatives of the weighted system in the weights: nothing
    of the theory is used.

    An empirical measure of L tokens is the law plus noise; to first order its effect on any output
    is the mean over tokens of the derivative in the mass at the token, less its mean, so that L
    times the variance is Σ_j w_j (dy/dw_j)² less the squared mean.
    """
    grid, mass = nodes(mu.dim, count)
    z0 = mu.mean + grid @ torch.linalg.cholesky(mu.covariance).mT

    def run(w):
        z, states = z0, []
        for U, V in zip(stack.U, stack.V, strict=True):
            score = z @ U.mT @ z.mT  # row i: scores of all tokens for query i
            weight = (score - score.amax(-1, keepdim=True)).exp() * w
            z = z + (weight / weight.sum(-1, keepdim=True)) @ z @ V.mT
            share = w / w.sum()
            mean = share @ z
            states.append((z, mean, (z - mean).mT @ (share.unsqueeze(-1) * (z - mean))))
        return states

    d, n = mu.dim, len(mass)
    found = []
    for k in range(stack.layers):
        jacobian = torch.autograd.functional.jacobian(
            lambda w, k=k: torch.cat([each.flatten() for each in run(w)[k]]), mass
        )
        centered = jacobian - (jacobian @ mass).unsqueeze(-1)
        variance = centered.square() @ mass
        token = float(mass @ variance[: n * d].reshape(n, d).sum(-1))
        found.append(
            (token, float(variance[n * d : n * d + d].sum()), float(variance[n * d + d :].sum()))
        )
    return np.array(found).T


@pytest.mark.parametrize(
    ("dim", "layers", "count", "degree", "tolerance"), [(1, 4, 50, 14, 1e-6), (2, 3, 9, 6, 1e-4)]
)
def test_noise_is_the_linear_response_of_the_whole_system(dim, layers, count, degree, tolerance):
    stack, mu = stack_and_law(dim, layers)
    limit = lp.depth.deep_limit(stack, mu)
    assert float(limit.h_squared.max()) < 0.35
    noise = lp.depth.deep_noise(limit, degree)
    token, mean, covariance = by_autodiff(stack, mu, count)
    np.testing.assert_allclose(noise.token[1:], token, rtol=tolerance)
    np.testing.assert_allclose(noise.mean[1:], mean, rtol=tolerance)
    np.testing.assert_allclose(noise.covariance[1:], covariance, rtol=tolerance)
    # what is left out matters: the same system without feedback, and with independent layers, can
    # be distinguished
    assert abs(float(noise.without_feedback[-1]) / token[-1] - 1) > 0.02
    assert abs(float(noise.independent[-1]) / token[-1] - 1) > 0.02


def test_one_layer_is_the_first_order_law_averaged_over_the_query():
    stack, mu = stack_and_law(2, 1)
    noise = lp.depth.deep_noise(lp.depth.deep_limit(stack, mu), 2)
    grid, mass = nodes(2, 40)
    law = lp.finite_prompt(
        stack.layer(0),
        mu,
        mu.mean + grid @ torch.linalg.cholesky(mu.covariance).mT,
        1,
        expansion=True,
    )
    expected = float(mass @ law.covariance.diagonal(dim1=-2, dim2=-1).sum(-1))
    assert float(noise.token[1]) == pytest.approx(expected, rel=1e-8)
    assert float(noise.update[0]) == pytest.approx(expected, rel=1e-8)
    assert float(noise.independent[1]) == pytest.approx(expected, rel=1e-8)


def test_entry_is_the_noise_of_sampling():
    _, mu = stack_and_law(3, 1)
    noise = lp.depth.deep_noise(lp.depth.deep_limit(stack_and_law(3, 1)[0], mu), 1)
    assert float(noise.token[0]) == 0
    assert float(noise.mean[0]) == pytest.approx(float(mu.covariance.trace()))
    # of (1/L) Σ (z - m)(z - m)^T
    expected = float(mu.covariance.trace() ** 2 + mu.covariance.square().sum())
    assert float(noise.covariance[0]) == pytest.approx(expected)


def test_degrees_converge_and_the_tail_goes():
    stack, mu = stack_and_law(2, 5)
    limit = lp.depth.deep_limit(stack, mu)
    ladder = [lp.depth.deep_noise(limit, degree) for degree in (2, 4, 6, 8)]
    last = [float(each.token[-1]) for each in ladder]
    steps = np.abs(np.diff(last))
    assert np.all(steps[1:] < steps[:-1])
    assert abs(last[1] / last[-1] - 1) < 1e-4
    tails = [float(each.tail[-1]) for each in ladder]
    assert np.all(np.diff(tails) < 0)
    assert tails[-1] < 1e-3 * last[-1]
    assert len({f"{float(each.without_feedback[-1]):.12g}" for each in ladder}) == 1


def test_displacement_of_a_prompt_leaves_a_second_order():
    """Halving the noise quarters what is left: residual over error falls like 1/L."""
    stack, mu = stack_and_law(2, 4)
    noise = lp.depth.deep_noise(lp.depth.deep_limit(stack, mu), 6)
    generator = torch.Generator().manual_seed(5)
    shares = []
    for length, replicas in ((100, 100), (1600, 12)):
        x = mu.sample(length * replicas, generator).reshape(replicas, length, 2)
        *_, z = stack.states(x)
        error = z - noise.limit.tokens(x)[-1]
        left = error - noise.displacement(x)[-1]
        shares.append(float((left.square().sum((-2, -1)) / error.square().sum((-2, -1))).median()))
    assert shares[0] < 0.2
    assert 0.02 < shares[1] / shares[0] < 0.2  # 1/16 expected


def test_moments_are_uncorrelated_with_variance_one_over_length():
    stack, mu = stack_and_law(2, 1)
    noise = lp.depth.deep_noise(lp.depth.deep_limit(stack, mu), 1)
    x = mu.sample(20_000 * 10, torch.Generator().manual_seed(6)).reshape(20_000, 10, 2)
    products = 10 * torch.einsum("ri,rj->rij", noise.moments(x), noise.moments(x))
    off = products.mean(0) - torch.eye(5, dtype=F)
    assert bool((off.abs() < 6 * products.std(0) / math.sqrt(20_000)).all())


def test_band_ends_where_the_first_order_does():
    eye = torch.eye(2, dtype=F)
    U = torch.stack([0.3 * eye, 0.8 * eye, 0.1 * eye])  # H² = 0.09 and 0.64
    limit = lp.depth.deep_limit(
        lp.depth.ResidualStack(U, 1e-3 * eye.expand(3, 2, 2)), lp.Gaussian([0.0, 0.0], eye)
    )
    noise = lp.depth.deep_noise(limit)
    assert noise.layers == 1
    assert noise.token.shape == (2,)
    assert "layers=1 of 3" in repr(noise)
    # scores of variance 0.2·(0.3·40)² at the first layer, above ln(10^15)/2
    far = lp.Gaussian([0.0, 40.0], 0.2 * eye)
    limit = lp.depth.deep_limit(lp.depth.ResidualStack(U, 1e-3 * eye.expand(3, 2, 2)), far)
    assert float(limit.h_squared[0]) < 0.01
    assert lp.depth.deep_noise(limit).layers == 0


def test_breaking_layer_is_the_first_outside_the_linear_regime():
    two = torch.full((6, 1, 1), 0.7, dtype=F)
    limit = lp.depth.deep_limit(lp.depth.ResidualStack(two, two), lp.Gaussian([0.0], [[1.0]]))
    for length in (5, 50, 10**4, 10**9):
        expected = next(
            k + 1 for k, q in enumerate(limit.score_variance.tolist()) if length <= math.exp(2 * q)
        )
        assert lp.depth.breaking_layer(limit, length) == expected
    assert lp.depth.breaking_layer(limit, math.inf) == (
        limit.layers + 1 if limit.diverged else None
    )
    quiet = lp.depth.deep_limit(
        lp.depth.ResidualStack(0.1 * two, 0.1 * two), lp.Gaussian([0.0], [[1.0]])
    )
    assert lp.depth.breaking_layer(quiet, 100) is None


BAD = [
    (lambda limit: lp.depth.deep_noise(limit.stack), "DeepLimit"),
    (lambda limit: lp.depth.deep_noise(limit, 0), "at least 1"),
    (lambda limit: lp.depth.deep_noise(limit, 10_000), "fit in memory"),
    (
        lambda limit: lp.depth.deep_noise(
            lp.depth.deep_limit(
                lp.depth.ResidualStack(limit.stack.U, limit.stack.V, "pre"), limit.law(0)
            )
        ),
        "normalization",
    ),
    (lambda limit: lp.depth.breaking_layer(limit.stack, 10), "DeepLimit"),
    (lambda limit: lp.depth.breaking_layer(limit, 0), "an integer from 1 to"),
    (lambda limit: lp.depth.deep_noise(limit).displacement(torch.ones(3, 4, dtype=F)), "shape"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_named(call, message):
    with pytest.raises(lp.InvalidArgumentError, match=message):
        call(lp.depth.deep_limit(*stack_and_law(2, 2)))
