"""Tokens on a sphere: one height integrated, the pair of points, and tilts far out."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate
from torch.testing import assert_close

import largeprompt as lp

F = torch.float64


def test_a_pair_of_points_is_a_sign():
    """Sphere(1) at tilts where 1 - tanh² is lost in rounding: the variance is sech²."""
    u = torch.tensor(
        [[0.0], [1e-3], [1.0], [5.0], [18.0], [30.0], [300.0], [380.0], [1e4]], dtype=F
    )
    assert_close(
        lp.Sphere(1).tilted_covariance(u), lp.Rademacher(1).tilted_covariance(u), rtol=1e-13, atol=0
    )


def test_variance_along_the_tilt_of_a_sphere_far_out():
    """Langevin's function in R³: 1/k² - 1/sinh² k with k = r‖u‖, times r²; in other dimensions (d -
    1)/(2k²) to first order.
    """
    sizes = torch.tensor([0.5, 3.0, 50.0, 1e3, 1e5, 1e8, 1e13, 1e150], dtype=F)
    along = lp.Sphere(3, 1.0).tilted_covariance(torch.stack([sizes, 0 * sizes, 0 * sizes], -1))[
        :, 0, 0
    ]
    assert_close(
        along,
        1 / sizes**2 - torch.where(sizes < 300, 1 / torch.sinh(sizes.clamp_max(300)) ** 2, 0.0),
        rtol=1e-9,
        atol=0,
    )
    for dim in (2, 5, 50):
        size = 1e12
        u = torch.zeros(dim, dtype=F)
        u[0] = size
        assert_close(
            float(lp.Sphere(dim, 1.0).tilted_covariance(u)[0, 0]) * size**2,
            (dim - 1) / 2,
            rtol=1e-6,
            atol=0,
        )


@pytest.mark.parametrize("dim", [2, 3, 6])
@pytest.mark.parametrize("k", [0.01, 0.8, 5.0, 60.0])
def test_sphere_by_its_height(dim, k):
    """The height t = x·u/(r‖u‖) of a uniform point has density ∝ (1-t²)^{(d-3)/2}; with t = cos θ
    it is sin^{d-2} θ.
    """
    radius = 1.7
    mu = lp.Sphere(dim, radius)

    def height(f):
        return integrate.quad(
            lambda a: f(math.cos(a)) * math.exp(k * (math.cos(a) - 1)) * math.sin(a) ** (dim - 2),
            0,
            math.pi,
            epsrel=1e-12,
            limit=300,
        )[0]

    free = integrate.quad(lambda a: math.sin(a) ** (dim - 2), 0, math.pi, epsrel=1e-12)[0]
    mass = height(lambda t: 1.0)
    mean = height(lambda t: t) / mass
    variance = height(lambda t: (t - mean) ** 2) / mass
    across = height(lambda t: 1 - t * t) / mass / (dim - 1)
    u = torch.zeros(dim, dtype=F)
    u[-1] = k / radius
    expected = torch.eye(dim, dtype=F) * across
    expected[-1, -1] = variance
    np.testing.assert_allclose(mu.cgf(u), k + math.log(mass / free), rtol=1e-9)
    np.testing.assert_allclose(mu.tilted_mean(u)[-1], radius * mean, rtol=1e-9)
    np.testing.assert_allclose(mu.tilted_covariance(u), radius**2 * expected, rtol=1e-8, atol=1e-14)


@pytest.mark.parametrize("size", [1e2, 1e17, 1e100])
def test_draws_at_any_tilt_end(size):
    """k (1 - t) tends to a Gamma variable of mean (d - 1)/2: at k = 1e17 the height t is 1 to the
    last digit.
    """
    drawn = lp.Sphere(3, 1.0).sample_tilted([size, 0.0, 0.0], 4000, 0)
    across = size * drawn[:, 1:].square().sum(-1) / 2  # 1 - t to first order
    assert float(across.mean()) == pytest.approx(1.0, abs=0.08)
