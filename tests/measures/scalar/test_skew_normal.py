"""Skew-normal tokens: density, skewness and exact draws; the logarithm of the normal distribution
function.
"""

import math

import mpmath
import pytest
import torch
from scipy import stats

import largeprompt as lp
from largeprompt.measures.scalar.skew_normal import log_ndtr

F = torch.float64
TILTS = torch.tensor([[-7.0], [-1.3], [-0.01], [0.0], [0.2], [0.9], [4.0], [300.0]], dtype=F)


def skew_normal_density(skew):
    law = lp.scalar.SkewNormalLaw(skew)
    slant = law.delta / math.sqrt(1 - law.delta**2)

    def density(x):
        y = law.center + law.spread * x
        return (
            law.spread
            * 2
            * math.exp(-(y**2) / 2)
            / math.sqrt(2 * math.pi)
            * math.erfc(-slant * y / math.sqrt(2))
            / 2
        )

    assert density(0.7) == pytest.approx(
        law.spread * stats.skewnorm.pdf(law.center + law.spread * 0.7, slant)
    )
    return density


DENSITIES = {
    "skew 0.3": (
        lp.scalar.SkewNormal(1, 0.3),
        skew_normal_density(0.3),
        (-15.0, 15.0),
        (-2.0, 0.0, 0.4, 3.0),
    ),
    "skew -0.9": (
        lp.scalar.SkewNormal(1, -0.9),
        skew_normal_density(-0.9),
        (-15.0, 15.0),
        (-2.0, 0.0, 0.4, 3.0),
    ),
}


@pytest.mark.parametrize(
    ("name", "tilt"), [(name, tilt) for name, case in DENSITIES.items() for tilt in case[3]]
)
def test_against_the_density(name, tilt, has_density):
    mu, density, ends, _ = DENSITIES[name]
    has_density(mu, density, ends, tilt)


@pytest.mark.parametrize(
    "mu", [lp.scalar.SkewNormal(1, 0.0), lp.scalar.SkewNormal(1, 1e-18)], ids=str
)
def test_gaussian_member(mu):
    torch.testing.assert_close(mu.cgf(TILTS), TILTS[:, 0] ** 2 / 2, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(mu.tilted_mean(TILTS), TILTS, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        mu.tilted_covariance(TILTS), torch.ones(len(TILTS), 1, 1, dtype=F), rtol=1e-12, atol=0
    )


@pytest.mark.parametrize("x", [-1e6, -1e3, -30.0, -5.0, -4.0, -3.0, -0.5, 0.0, 1.0, 5.0])
def test_log_normal_cdf_and_its_derivatives(x):
    """ζ1 = φ/Φ and ζ2 = -ζ1(x + ζ1), in 60 digits: the cancellation that double precision could not
    survive.
    """
    with mpmath.workdps(60):
        mills = (
            mpmath.exp(mpmath.mpf(x) ** 2 / 2) * mpmath.erfc(-mpmath.mpf(x) / mpmath.sqrt(2)) / 2
        )
        first = 1 / (mills * mpmath.sqrt(2 * mpmath.pi))
        expected = [mpmath.log(mills) - mpmath.mpf(x) ** 2 / 2, first, -first * (x + first)]
        expected = [float(value) for value in expected]
    point = torch.tensor(x, dtype=F, requires_grad=True)
    value = log_ndtr(point)
    (slope,) = torch.autograd.grad(value, point, create_graph=True)
    (bend,) = torch.autograd.grad(slope, point)
    assert [float(v.detach()) for v in (value, slope, bend)] == pytest.approx(
        expected, rel=1e-13, abs=1e-300
    )


@pytest.mark.parametrize("skew", [-0.99, -0.4, 1e-6, 0.7])
def test_skew_is_the_third_cumulant(skew):
    _, k1, k2, k3 = lp.scalar.SkewNormalLaw(skew).derivatives(torch.zeros((), dtype=F), 3)
    assert float(k1) == pytest.approx(0.0, abs=1e-15)
    assert float(k2) == pytest.approx(1.0, rel=1e-13)
    assert float(k3) == pytest.approx(skew, rel=1e-9)
    assert abs(lp.scalar.SkewNormalLaw(skew).delta) < 1


def test_far_tilts_are_drawn_exactly(draws_its_tilts):
    draws_its_tilts(lp.scalar.SkewNormalLaw(0.8), [-40.0, 40.0])
