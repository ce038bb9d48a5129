"""The quadratures that the limit is compared with (C1, C2), each against something simpler."""

import math

import numpy as np
import pytest
from scipy.integrate import quad

from largeprompt.studies.limit.checks import gaussian_by_grid, mixture_by_tilt


def test_two_routes_of_the_gaussian_agree():
    random = np.random.default_rng(0)
    mean, root, u = random.normal(size=2), random.normal(size=(2, 2)), random.normal(size=2)
    tilted = mixture_by_tilt(np.ones(1), mean[None], root[None], u)
    np.testing.assert_allclose(gaussian_by_grid(mean, root, u), tilted, rtol=1e-12)
    np.testing.assert_allclose(gaussian_by_grid(mean, np.zeros((2, 0)), u), mean)


def test_mixture_in_one_dimension_by_adaptive_quadrature():
    shares, means = np.array([0.3, 0.7]), np.array([[-1.0], [1.5]])
    sizes, u = np.array([0.5, 0.8]), np.array([0.9])

    def density(x):
        return sum(
            p / s * math.exp(-((x - m) ** 2) / (2 * s * s))
            for p, m, s in zip(shares, means[:, 0], sizes, strict=True)
        )

    top, bottom = (
        quad(lambda x, k=k: x**k * math.exp(u[0] * x) * density(x), -12, 14)[0] for k in (1, 0)
    )
    found = mixture_by_tilt(shares, means, sizes.reshape(2, 1, 1), u)
    assert found[0] == pytest.approx(top / bottom, rel=1e-9)


def test_affine_map_misses_mixtures_and_not_gaussians(data):
    error = data.affine_error
    assert float(error.sel(kind="regular").max()) < 1e-12
    assert float(error.sel(kind="mixture").min()) > 0.01
