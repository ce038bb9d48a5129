"""The cumulant ladder and its radius of convergence against closed forms."""

import math

import pytest
import torch
from scipy.special import wofz

import largeprompt as lp

F = torch.float64


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
    with pytest.raises(lp.InvalidArgumentError, match="direction"):
        lp.measures.ladder_radius(lp.measures.gauss_rule(lp.Rademacher(2)))
    with pytest.raises(lp.InvalidArgumentError, match="one Discrete law"):
        lp.measures.ladder_radius(lp.Rademacher(1))
    with pytest.raises(lp.InvalidArgumentError, match="mu"):
        lp.measures.cumulant_ladder(lp.Gaussian([[0.0], [1.0]], [[1.0]]), [1.0])


@pytest.mark.parametrize("largest", [2.0, 30.0, 1e4])
def test_the_first_of_many_zeros_is_found_however_far_one_looks(largest):
    """cosh t = 0 at t = iπ/2, 3iπ/2, ...: ten thousand zeros within the largest circle."""
    assert lp.measures.ladder_radius(lp.Discrete([[-1.0], [1.0]], [0.5, 0.5]), largest=largest) == pytest.approx(
        math.pi / 2, rel=1e-12
    )
