"""The rule for quadratic forms against Gaussian integrals in closed form, dense Gauss-Hermite rules
and SciPy's chi-square law.
"""

import math

import numpy as np
import pytest
from scipy.stats import chi2, ncx2

from largeprompt.measures.numerics.quadratic_form import (
    _logarithm,
    gaussian_form_rule,
    quadratic_form_rule,
)

SPECTRA = {
    "one": [3.0],
    "two": [1.0, 1.0],
    "conditioned": np.logspace(0, -6, 5),
    "beyond": np.logspace(2, -10, 7),
    "with zeros": [1.0, 0.0, 0.3, 0.0],
    "fifty": np.logspace(0, -6, 50),
    "hundred": np.ones(100),
    "one large": np.r_[1.0, np.full(80, 0.03)],
    "cluster": np.r_[2.0, 2.0, np.linspace(1e-3, 2e-3, 40)],
}


def defect(rule):
    """Largest relative error of the total weight and of the first two moments of q, known ones."""
    lam, m = rule.eigenvalues, rule.shift
    mean, variance = (lam * (1 + m**2)).sum(), 2 * (lam**2 * (1 + 2 * m**2)).sum()
    known = [1.0, mean, variance + mean**2]
    return max(abs(rule.weights @ rule.nodes**k / one - 1) for k, one in enumerate(known))


def laplace(lam, m, t):
    """E e^{-tq}, a Gaussian integral."""
    below = 1 + 2 * t * lam
    return np.exp(-0.5 * np.log(below).sum() - (t * lam * m**2 / below).sum())


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("size", [0.0, 1.0, 20.0])
def test_laplace_transforms_and_their_moments(name, size):
    lam = np.asarray(SPECTRA[name], dtype=float)
    m = size * np.cos(np.arange(len(lam)))
    rule = quadratic_form_rule(lam, m)
    assert min(rule.weights.min(), np.diff(rule.nodes).min()) > 0
    assert defect(rule) < 5e-14
    a = 1.0 + np.arange(len(lam)) % 3
    one = rule.form_weights(np.diag(a))
    assert one.min() > 0
    for t in np.array([-0.15, 0.0, 0.7, 2.0]) / np.sqrt(2 * (lam**2 * (1 + 2 * m**2)).sum()):
        value, g, phi = laplace(lam, m, t), np.exp(-t * rule.nodes), 1 / (1 + 2 * t * lam)
        form = (a * (phi + (phi * m) ** 2)).sum()
        assert rule.weights @ g == pytest.approx(value, rel=2e-13)
        assert one @ g == pytest.approx(value * form, rel=2e-13)


@pytest.mark.parametrize("lam", [np.ones(1000), np.logspace(0, -6, 1000)])
def test_a_thousand_dimensions(lam):
    rule = quadratic_form_rule(lam)
    assert rule.weights.min() > 0
    assert defect(rule) < 5e-14


def test_factors_are_the_moments_of_wick():
    lam, t = np.array([1.0, 0.4, 0.4, 1e-5, 0.0]), 0.3
    rule = quadratic_form_rule(lam)
    g, phi, value = np.exp(-t * rule.nodes), 1 / (1 + 2 * t * lam), laplace(lam, 0 * lam, t)
    assert rule.factors(g, 0) == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(rule.factors(g, 1), value * phi, rtol=1e-13)
    np.testing.assert_allclose(rule.factors(g, 2), value * np.outer(phi, phi), rtol=1e-13)
    np.testing.assert_allclose(
        rule.factors(g, 3), value * np.einsum("i,j,k->ijk", phi, phi, phi), rtol=1e-13
    )


@pytest.mark.parametrize(
    ("lam", "m"),
    [([0.5], [0.0]), ([0.5], [0.8]), ([1.0, 0.2], [0.0, 0.0]), ([1.0, 0.01], [0.5, -2.0])],
)
def test_against_gauss_hermite(lam, m):
    points, mass = np.polynomial.hermite_e.hermegauss(180)
    mass = mass / mass.sum()
    grid = np.stack(np.meshgrid(*[points] * len(lam), indexing="ij"), -1).reshape(-1, len(lam))
    weight = np.prod(
        np.stack(np.meshgrid(*[mass] * len(lam), indexing="ij"), -1).reshape(-1, len(lam)), -1
    )
    eta = grid + np.asarray(m)
    q = eta**2 @ np.asarray(lam)
    rule = quadratic_form_rule(lam, m)
    B = np.eye(len(lam)) + 0.3

    def g(q):
        return 1 / (1 + np.exp(2 - q / 4))  # a rise from 0 to 1, as the share of the largest token

    assert rule.weights @ g(rule.nodes) == pytest.approx(weight @ g(q), rel=1e-11)
    form = ((eta @ B) * eta).sum(-1)
    assert rule.form_weights(B) @ g(rule.nodes) == pytest.approx(weight @ (form * g(q)), rel=1e-11)


@pytest.mark.parametrize("singular", [False, True])
def test_gaussian_vectors_with_a_mean(singular):
    rng = np.random.default_rng(3)
    F = rng.normal(size=(4, 2 if singular else 4))
    C, M, mean = F @ F.T, np.diag([1.0, 0.5, 0.0, 2.0]) + 0.1, rng.normal(size=4)
    rule = gaussian_form_rule(M, C, mean)
    B, t = np.eye(4) + 0.2, 0.4
    inverse = np.linalg.inv(np.eye(4) + 2 * t * C @ M)
    tilted, spread = inverse @ mean, inverse @ C
    value = math.exp(-t * mean @ M @ tilted) * np.linalg.det(inverse) ** 0.5
    g = np.exp(-t * rule.nodes)
    assert rule.weights @ g == pytest.approx(value, rel=1e-12)
    assert rule.form_weights(B) @ g == pytest.approx(
        value * (np.trace(B @ spread) + tilted @ B @ tilted), rel=1e-12
    )


def test_no_more_is_left_out_than_was_asked():
    """(query.5): Chernoff's bound at the ends is the tail."""
    for d, m in ((1, 0.0), (1, 2.0), (30, 0.0)):
        shift = np.zeros(d)
        shift[0] = m
        rule = quadratic_form_rule(np.ones(d), shift, tail=1e-6)
        law = ncx2(d, m**2) if m else chi2(d)
        assert law.cdf(rule.nodes[0]) <= 1e-6
        assert 1e-12 < law.sf(rule.nodes[-1]) <= 1e-6


def test_logarithms_by_parts_are_those_of_numpy():
    """Below the real axis, too."""
    rng = np.random.default_rng(0)
    sizes = np.exp(rng.uniform(-300, 300, (50, 4)))
    z = sizes * np.exp(1j * rng.uniform(-np.pi, np.pi, sizes.shape))
    np.testing.assert_allclose(_logarithm(z), np.log(z), rtol=1e-14, atol=1e-14)


def test_several_rules_at_once():
    lam = np.array([[1.0, 0.2], [3.0, 3.0], [0.0, 0.0]])
    rule = quadratic_form_rule(lam)
    for i, row in enumerate(lam):
        assert rule.weights[i] @ np.exp(-rule.nodes[i]) == pytest.approx(
            laplace(row, 0 * row, 1.0), rel=1e-13
        )
    np.testing.assert_allclose(
        rule.factors(np.exp(-rule.nodes), 1)[0],
        rule.weights[0] @ np.exp(-rule.nodes[0]) / (1 + 2 * lam[0]),
    )
    np.testing.assert_allclose(rule.factors(np.exp(-rule.nodes), 1)[2], [1, 1])


def test_nothing_random_is_one_node():
    rule = quadratic_form_rule([0.0, 0.0])
    assert (rule.nodes.tolist(), rule.weights.tolist()) == ([0.0], [1.0])
    assert rule.form_weights(np.eye(2)).tolist() == [2.0]
