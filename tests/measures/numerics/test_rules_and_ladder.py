"""Quadrature rules against moments and tilted means of the laws; the cumulant ladder and its radius against closed forms."""

import math

import pytest
import torch
from scipy.special import wofz

import largeprompt as lp
from largeprompt.measures.scalar.skew_normal import LARGEST_SKEW

F = torch.float64
LAWS = [
    lp.Rademacher(1),
    lp.scalar.RademacherSum(1, 5),
    lp.Uniform(1),
    lp.scalar.GeneralisedNormal(1, 1.5),
    lp.scalar.GeneralisedNormal(1, 4.0),
    lp.scalar.SkewNormal(1, 0.7),
    lp.Gaussian([0.4], [[1.5]]),
    lp.GaussianMixture([0.2, 0.8], [[-1.0], [0.5]], [[[0.3]], [[0.6]]]),
]


@pytest.mark.parametrize("mu", LAWS, ids=repr)
@pytest.mark.parametrize("nodes", [12, None])
def test_rules_have_mean_variance_and_tilts_of_the_law(mu, nodes):
    rule = lp.measures.gauss_rule(mu, nodes)
    torch.testing.assert_close(rule.mean, mu.mean, rtol=0, atol=1e-9)
    torch.testing.assert_close(rule.covariance, mu.covariance, rtol=0, atol=1e-7)
    tilts = torch.tensor([[-1.0], [0.4], [1.0]], dtype=F)
    torch.testing.assert_close(rule.tilted_mean(tilts), mu.tilted_mean(tilts), rtol=0, atol=1e-6)


@pytest.mark.parametrize("shape", [1.001, 1.5, 4.0, 8.0, 50.0, 1000.0])
@pytest.mark.parametrize("nodes", [12, None])
def test_rules_resolve_where_the_density_falls_off(shape, nodes):
    """E x^k = a^k Γ((k+1)/β)/Γ(1/β), for shapes that end sharply at ±a too; and the law's own tilts by another rule."""
    mu = lp.scalar.GeneralisedNormal(1, shape)
    rule, width = lp.measures.gauss_rule(mu, nodes), mu.law.width
    for k in (2, 4, 6):
        expected = width**k * math.exp(math.lgamma((k + 1) / shape) - math.lgamma(1 / shape))
        assert float(rule.weights @ rule.atoms[:, 0] ** k) == pytest.approx(expected, rel=2e-12)
    if nodes is None:
        torch.testing.assert_close(rule.tilted_mean([[0.4], [1.0]]), mu.tilted_mean([[0.4], [1.0]]), rtol=0, atol=1e-13)


@pytest.mark.parametrize("skew", [0.5, 0.994, -0.9952, 0.99527, math.nextafter(LARGEST_SKEW, 0)])
@pytest.mark.parametrize("nodes", [12, None])
def test_rules_resolve_the_edge_of_a_skewed_law(skew, nodes):
    rule = lp.measures.gauss_rule(lp.scalar.SkewNormal(1, skew), nodes)
    for k, expected in ((1, 0.0), (2, 1.0), (3, skew)):
        assert float(rule.weights @ rule.atoms[:, 0] ** k) == pytest.approx(expected, abs=1e-12)


def test_a_gauss_rule_with_n_nodes_is_exact_to_degree_2n_minus_1():
    fine, rule = lp.measures.gauss_rule(lp.scalar.SkewNormal(1, 0.5)), lp.measures.gauss_rule(lp.scalar.SkewNormal(1, 0.5), 4)
    assert rule.count == 4

    def moment(law, n):
        return float(law.weights @ law.atoms[:, 0] ** n)

    for n in range(8):
        assert moment(rule, n) == pytest.approx(moment(fine, n), rel=1e-10, abs=1e-12)
    assert moment(rule, 8) != pytest.approx(moment(fine, 8), rel=1e-3)


def test_products():
    rule = lp.measures.gauss_rule(lp.Product([lp.scalar.RademacherLaw(), lp.scalar.UniformLaw()]), 3)
    assert rule.count == 6
    torch.testing.assert_close(rule.covariance, torch.eye(2, dtype=F))
    coin = lp.Discrete([[-1.0], [1.0]], [0.25, 0.75])
    both = lp.measures.product_rule(coin, rule)
    torch.testing.assert_close(both.mean, torch.tensor([0.5, 0.0, 0.0], dtype=F), rtol=0, atol=1e-14)
    u = torch.tensor([0.3, -0.5, 0.8], dtype=F)
    expected = torch.cat([coin.tilted_mean(u[:1]), rule.tilted_mean(u[1:])])
    torch.testing.assert_close(both.tilted_mean(u), expected)
    assert lp.measures.gauss_rule(coin, 7) is coin


def test_ladder_has_the_cumulants():
    rungs = lp.measures.cumulant_ladder(lp.scalar.RademacherSum(1, 3), torch.tensor([[0.5], [2.0]], dtype=F))
    expected = torch.tensor([[0.0, u * u, 0.0, -2 / 3 * u**4 / 6] for u in (0.5, 2.0)], dtype=F)
    torch.testing.assert_close(rungs, expected, rtol=0, atol=1e-12)
    mu, u = lp.scalar.SkewNormal(2, 0.5), 0.01 * torch.tensor([1.0, 2.0], dtype=F)
    torch.testing.assert_close(lp.measures.cumulant_ladder(mu, u).sum(), (u * mu.tilted_mean(u)).sum(), rtol=1e-6, atol=0)


def test_radius_is_the_nearest_zero():
    assert lp.measures.ladder_radius(lp.measures.gauss_rule(lp.Uniform(1))) == pytest.approx(math.pi / math.sqrt(3), rel=1e-9)
    assert lp.measures.ladder_radius(lp.measures.gauss_rule(lp.scalar.RademacherSum(1, 4))) == pytest.approx(math.pi, rel=1e-5)
    m = 0.8
    mixture = lp.GaussianMixture([0.5, 0.5], [[-m], [m]], [[[1 - m * m]], [[1 - m * m]]])
    assert lp.measures.ladder_radius(lp.measures.gauss_rule(mixture)) == pytest.approx(math.pi / (2 * m), rel=1e-9)
    assert lp.measures.ladder_radius(lp.measures.gauss_rule(lp.Gaussian([0.0], [[1.0]])), largest=3.0) == math.inf
    two = lp.measures.gauss_rule(lp.Rademacher(2))
    assert lp.measures.ladder_radius(two, torch.tensor([0.6, 0.8], dtype=F)) == pytest.approx(math.pi / 1.6, rel=1e-9)


def test_radius_of_a_skewed_law_is_off_the_axes():
    """E e^{tx} ∝ Φ(δt/s): the zero of erfc nearest to 0."""
    law = lp.scalar.SkewNormal(1, 0.9).law
    radius = lp.measures.ladder_radius(lp.measures.gauss_rule(lp.scalar.SkewNormal(1, 0.9)))
    z = complex(-1.354810128112006, 1.991466842833858)
    assert abs(wofz(1j * z)) < 1e-8  # erfc z = e^{-z²} w(iz)
    assert radius == pytest.approx(abs(z) * math.sqrt(2) * law.spread / law.delta, rel=1e-7)


def test_ladder_converges_inside_and_not_outside():
    """Four rungs of uniform tokens: the share that they miss falls like the square of the tilt over the radius."""
    mu, radius = lp.Uniform(1), math.pi / math.sqrt(3)

    def error(u):
        gap = float(mu.tilted_mean([u])) - u
        return abs(float(lp.measures.cumulant_ladder(mu, [u])[2:].sum()) / u / gap - 1)

    assert error(radius / 4) < 0.06
    assert error(radius / 8) == pytest.approx(error(radius / 4) / 4, rel=0.05)
    assert error(2 * radius) > 1


def test_bad_input():
    with pytest.raises(lp.InvalidArgumentError, match="nodes"):
        lp.measures.gauss_rule(lp.Uniform(1), 0)
    with pytest.raises(lp.InvalidArgumentError, match="1 to 200"):
        lp.measures.gauss_rule(lp.Uniform(1), 500)
    with pytest.raises(lp.InvalidArgumentError, match="mu"):
        lp.measures.gauss_rule(lp.Sphere(3), 5)
    with pytest.raises(lp.InvalidArgumentError, match="mu: got 'x'"):
        lp.measures.gauss_rule("x")
    with pytest.raises(lp.InvalidArgumentError, match="fewer than"):
        lp.measures.gauss_rule(lp.scalar.RademacherSum(1, 10**9), 5)
    with pytest.raises(lp.InvalidArgumentError, match="mu"):
        lp.measures.gauss_rule(lp.Laplace(1), 5)
    with pytest.raises(lp.InvalidArgumentError, match="at most"):
        lp.measures.gauss_rule(lp.Uniform(8), 20)
    with pytest.raises(lp.InvalidArgumentError, match="rules"):
        lp.measures.product_rule()
    with pytest.raises(lp.InvalidArgumentError, match="direction"):
        lp.measures.ladder_radius(lp.measures.gauss_rule(lp.Rademacher(2)))
    with pytest.raises(lp.InvalidArgumentError, match="one Discrete law"):
        lp.measures.ladder_radius(lp.Rademacher(1))
    with pytest.raises(lp.InvalidArgumentError, match="mu"):
        lp.measures.cumulant_ladder(lp.Gaussian([[0.0], [1.0]], [[1.0]]), [1.0])
