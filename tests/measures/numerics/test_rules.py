"""Quadrature rules against moments and tilted means of the laws."""

import math

import pytest
import torch

import largeprompt as lp
from largeprompt.measures.scalar.skew_normal import LARGEST_SKEW

F = torch.float64
LAWS = [
    lp.Rademacher(1),
    lp.Uniform(1),
    lp.scalar.GeneralizedNormal(1, 1.5),
    lp.scalar.GeneralizedNormal(1, 4.0),
    lp.scalar.SkewNormal(1, 0.7),
    lp.Gaussian([0.4], [[1.5]]),
    lp.GaussianMixture([0.2, 0.8], [[-1.0], [0.5]], [[[0.3]], [[0.6]]]),
]


@pytest.mark.parametrize("mu", LAWS, ids=repr)
def test_rules_have_mean_variance_and_tilts_of_the_law(mu):
    rule = lp.measures.gauss_rule(mu, 12)
    torch.testing.assert_close(rule.mean, mu.mean, rtol=0, atol=1e-9)
    torch.testing.assert_close(rule.covariance, mu.covariance, rtol=0, atol=1e-7)
    tilts = torch.tensor([[-1.0], [0.4], [1.0]], dtype=F)
    torch.testing.assert_close(rule.tilted_mean(tilts), mu.tilted_mean(tilts), rtol=0, atol=1e-6)


@pytest.mark.parametrize("shape", [1.001, 1.5, 4.0, 8.0, 50.0, 1000.0])
def test_rules_resolve_where_the_density_falls_off(shape):
    """E x^k = a^k Γ((k+1)/β)/Γ(1/β), for shapes that end sharply at ±a too; and the law's own tilts
    by another rule.
    """
    mu = lp.scalar.GeneralizedNormal(1, shape)
    rule, width = lp.measures.gauss_rule(mu, 12), mu.law.width
    for k in (2, 4, 6):
        expected = width**k * math.exp(math.lgamma((k + 1) / shape) - math.lgamma(1 / shape))
        assert float(rule.weights @ rule.atoms[:, 0] ** k) == pytest.approx(expected, rel=2e-12)


@pytest.mark.parametrize("skew", [0.5, 0.994, -0.9952, 0.99527, math.nextafter(LARGEST_SKEW, 0)])
def test_rules_resolve_the_edge_of_a_skewed_law(skew):
    rule = lp.measures.gauss_rule(lp.scalar.SkewNormal(1, skew), 12)
    for k, expected in ((1, 0.0), (2, 1.0), (3, skew)):
        assert float(rule.weights @ rule.atoms[:, 0] ** k) == pytest.approx(expected, abs=1e-12)


def test_a_gauss_rule_with_n_nodes_is_exact_to_degree_2n_minus_1():
    fine, rule = (
        lp.measures.gauss_rule(lp.scalar.SkewNormal(1, 0.5), 60),
        lp.measures.gauss_rule(lp.scalar.SkewNormal(1, 0.5), 4),
    )
    assert rule.count == 4

    def moment(law, n):
        return float(law.weights @ law.atoms[:, 0] ** n)

    for n in range(8):
        assert moment(rule, n) == pytest.approx(moment(fine, n), rel=1e-10, abs=1e-12)
    assert moment(rule, 8) != pytest.approx(moment(fine, 8), rel=1e-3)


def test_products():
    rule = lp.measures.gauss_rule(
        lp.Product([lp.scalar.RademacherLaw(), lp.scalar.UniformLaw()]), 3
    )
    assert rule.count == 6
    torch.testing.assert_close(rule.covariance, torch.eye(2, dtype=F))
    coin = lp.Discrete([[-1.0], [1.0]], [0.25, 0.75])
    assert lp.measures.gauss_rule(coin, 7) is coin


def test_bad_input():
    with pytest.raises(lp.InvalidArgumentError, match="nodes"):
        lp.measures.gauss_rule(lp.Uniform(1), 0)
    with pytest.raises(lp.InvalidArgumentError, match="at most 200"):
        lp.measures.gauss_rule(lp.Uniform(1), 500)
    with pytest.raises(lp.InvalidArgumentError, match="mu"):
        lp.measures.gauss_rule(lp.Sphere(3), 5)
    with pytest.raises(lp.InvalidArgumentError, match="mu: got 'x'"):
        lp.measures.gauss_rule("x", 5)
    with pytest.raises(lp.InvalidArgumentError, match="mu"):
        lp.measures.gauss_rule(lp.Laplace(1), 5)
    with pytest.raises(lp.InvalidArgumentError, match="at most"):
        lp.measures.gauss_rule(lp.Uniform(8), 20)
