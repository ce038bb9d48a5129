"""The radius of convergence of the cumulant ladder against closed forms."""

import math

import pytest
from scipy.special import wofz

import largeprompt as lp
from largeprompt.studies.nongaussian.radius import ladder_radius


def radius(mu, largest=4.0):
    return ladder_radius(lp.measures.gauss_rule(mu), largest)


def test_radius_is_the_nearest_zero():
    assert radius(lp.Uniform(1)) == pytest.approx(math.pi / math.sqrt(3), rel=1e-9)
    assert radius(lp.scalar.RademacherSum(1, 4)) == pytest.approx(math.pi, rel=1e-5)
    m = 0.8
    mixture = lp.GaussianMixture([0.5, 0.5], [[-m], [m]], [[[1 - m * m]], [[1 - m * m]]])
    assert radius(mixture) == pytest.approx(math.pi / (2 * m), rel=1e-9)
    assert radius(lp.Gaussian([0.0], [[1.0]]), largest=3.0) == math.inf
    assert radius(lp.Rademacher(1), largest=1.0) == math.inf


def test_radius_of_a_skewed_law_is_off_the_axes():
    """E e^{tx} ∝ Φ(δt/s): the zero of erfc nearest to 0."""
    law = lp.scalar.SkewNormal(1, 0.9).law
    z = complex(-1.354810128112006, 1.991466842833858)
    assert abs(wofz(1j * z)) < 1e-8  # erfc z = e^{-z²} w(iz)
    assert radius(lp.scalar.SkewNormal(1, 0.9)) == pytest.approx(
        abs(z) * math.sqrt(2) * law.spread / law.delta, rel=1e-7
    )
