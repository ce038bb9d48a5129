"""The infinite-prompt recursion of a residual stack, against operators on measures, quadrature and
sampling.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import largeprompt as lp

F = torch.float64
EYE = torch.eye(3, dtype=F)


def weights(layers, d, seed=0, score=0.3, value=0.4):
    generator = torch.Generator().manual_seed(seed)
    U, V = (
        torch.randn(layers, d, d, generator=generator, dtype=F) / math.sqrt(d) for _ in range(2)
    )
    return score * U, value * V


def gaussian(d, seed=0, mean=0.3):
    generator = torch.Generator().manual_seed(100 + seed)
    root = torch.eye(d, dtype=F) + 0.3 * torch.randn(d, d, generator=generator, dtype=F)
    return lp.Gaussian(mean * torch.randn(d, generator=generator, dtype=F), root @ root.mT)


def test_recursion_is_the_operator_on_the_law():
    """Each layer by attention on the Gaussian measure, whose image is taken by fitting the affine
    map to d + 1 tokens.
    """
    U, V = weights(4, 3)
    mu = gaussian(3)
    stack = lp.depth.ResidualStack(U, V)
    limit = lp.depth.deep_limit(stack, mu)
    points = torch.cat([torch.zeros(1, 3, dtype=F), torch.eye(3, dtype=F)])
    law, z = mu, torch.tensor([[0.4, -1.0, 2.0]], dtype=F)
    for k in range(4):
        queries = torch.cat([points, z])
        moved = queries + stack.layer(k)(law, queries)
        offset, matrix = moved[0], (moved[1:4] - moved[0]).mT
        u = law.mean + (law.sample(20000, torch.Generator().manual_seed(k)) - law.mean)
        score = torch.einsum("ni,ij,nj->n", u @ U[k].mT, law.covariance, u @ U[k].mT)
        assert abs(float(score.mean()) - float(limit.score_variance[k])) < 6 * float(
            score.std()
        ) / math.sqrt(20000)
        law, z = law.map(matrix, offset), moved[4:]
        torch.testing.assert_close(limit.mean[k + 1], law.mean)
        torch.testing.assert_close(limit.covariance[k + 1], law.covariance)
        torch.testing.assert_close(limit.tokens([0.4, -1.0, 2.0])[k + 1], z[0])
    assert limit.exact
    torch.testing.assert_close(
        limit.law(4).covariance, mu.map(limit.matrix[4], limit.offset[4]).covariance
    )


def test_gaussian_stays_gaussian_on_quadrature_nodes():
    """Gauss-Hermite nodes, weighted, go through the layers as a discrete law, which knows nothing
    of Gaussian tokens.
    """
    U, V = weights(4, 1, seed=3, score=0.5, value=0.5)
    mu = lp.Gaussian([0.4], [[1.2]])
    stack = lp.depth.ResidualStack(U, V)
    limit = lp.depth.deep_limit(stack, mu)
    x, w = np.polynomial.hermite_e.hermegauss(48)
    w = torch.from_numpy(w / w.sum())
    z = 0.4 + math.sqrt(1.2) * torch.from_numpy(x).unsqueeze(-1)
    expected = limit.tokens(z)
    inner = torch.from_numpy(np.abs(x) < 5)
    for k in range(4):
        z = z + stack.layer(k)(lp.Discrete(z, w), z)
        torch.testing.assert_close(z[inner], expected[k + 1][inner], rtol=1e-7, atol=1e-7)
        assert float(w @ z.squeeze(-1)) == pytest.approx(float(limit.mean[k + 1]), rel=1e-7)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), kind=st.sampled_from(["none", "pre", "sphere"]))
def test_turning_the_coordinates_turns_the_answer(seed, kind):
    U, V = weights(3, 3, seed=seed)
    mu = gaussian(3, seed=seed)
    turn = torch.linalg.qr(
        torch.randn(3, 3, generator=torch.Generator().manual_seed(seed), dtype=F)
    )[0]
    limit = lp.depth.deep_limit(lp.depth.ResidualStack(U, V, kind), mu)
    turned = lp.depth.deep_limit(
        lp.depth.ResidualStack(turn @ U @ turn.mT, turn @ V @ turn.mT, kind), mu.map(turn)
    )
    torch.testing.assert_close(turned.mean, limit.mean @ turn.mT, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(
        turned.covariance, turn @ limit.covariance @ turn.mT, rtol=1e-8, atol=1e-10
    )
    torch.testing.assert_close(turned.score_variance, limit.score_variance, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(turned.h_squared, limit.h_squared, rtol=1e-8, atol=1e-10)


def test_without_values_nothing_moves():
    U, V = weights(5, 3)
    limit = lp.depth.deep_limit(lp.depth.ResidualStack(U, 0 * V), gaussian(3))
    torch.testing.assert_close(limit.covariance, limit.covariance[:1].expand(6, 3, 3))
    z = torch.ones(3, dtype=F)
    torch.testing.assert_close(limit.tokens(z), z.expand(6, 3))


def test_recursion_stops_where_it_runs_away():
    """V = U = 2: γ' = γ(1 + 4γ)²."""
    two = 2 * torch.ones(8, 1, 1, dtype=F)
    limit = lp.depth.deep_limit(lp.depth.ResidualStack(two, two), lp.Gaussian([0.0], [[1.0]]))
    g = 1.0
    for k, value in enumerate(limit.covariance[:, 0, 0].tolist()):
        assert value == pytest.approx(g)
        if k < limit.layers:
            assert float(limit.score_variance[k]) == pytest.approx(4 * g * g)
        g *= (1 + 4 * g) ** 2
    assert limit.diverged
    assert limit.layers < 8
    assert "of 8" in repr(limit)


@pytest.mark.parametrize("kind", ["pre", "sphere"])
def test_normalized_closure_has_the_moments_of_its_own_map(kind):
    """One step: Gaussian tokens moved by the closure's map, sampled. 'sphere' is exact for mean 0
    at every layer.
    """
    U, V = weights(3, 4, value=0.8, score=0.8)
    mu = gaussian(4, mean=0.0 if kind == "sphere" else 0.5)
    limit = lp.depth.deep_limit(lp.depth.ResidualStack(U, V, kind), mu)
    assert not limit.exact
    assert limit.matrix is None
    n = 400_000
    states = limit.tokens(mu.sample(n, torch.Generator().manual_seed(0)))
    for k in (1, 2, 3) if kind == "sphere" else (1,):
        z = states[k]
        se = z.std(0) / math.sqrt(n)
        assert bool(((z.mean(0) - limit.mean[k]).abs() < 6 * se + 1e-12).all())
        products = (z - limit.mean[k]).unsqueeze(-1) * (z - limit.mean[k]).unsqueeze(-2)
        spread = products.std(0) / math.sqrt(n)
        assert bool(((products.mean(0) - limit.covariance[k]).abs() < 6 * spread).all())


def test_pre_norm_second_step_reads_the_gaussian_with_these_moments():
    U, V = weights(2, 3)
    mu = gaussian(3)
    limit = lp.depth.deep_limit(lp.depth.ResidualStack(U, V, "pre"), mu)
    again = lp.depth.deep_limit(lp.depth.ResidualStack(U[1:], V[1:], "pre"), limit.law(1))
    torch.testing.assert_close(again.mean[1], limit.mean[2])
    torch.testing.assert_close(again.covariance[1], limit.covariance[2])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda U, V: lp.depth.deep_limit(U, gaussian(3)), "ResidualStack"),
        (
            lambda U, V: lp.depth.deep_limit(lp.depth.ResidualStack(U, V), lp.Rademacher(3)),
            "one Gaussian",
        ),
        (
            lambda U, V: lp.depth.deep_limit(
                lp.depth.ResidualStack(U, V), lp.Gaussian(torch.zeros(2, 3, dtype=F), EYE)
            ),
            "one Gaussian",
        ),
        (lambda U, V: lp.depth.deep_limit(lp.depth.ResidualStack(U, V), gaussian(2)), "R\\^3"),
        (
            lambda U, V: lp.depth.deep_limit(
                lp.depth.ResidualStack(U, V, "pre"), lp.Gaussian([0.0] * 3, [[0.0] * 3] * 3)
            ),
            "normalized",
        ),
        (
            lambda U, V: lp.depth.deep_limit(lp.depth.ResidualStack(U, V), gaussian(3)).tokens(
                torch.ones(2, dtype=F)
            ),
            "shape",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(lp.InvalidArgumentError, match=message):
        call(*weights(2, 3))
