"""The quadratures that the limit is compared with (C1, C2), each against something simpler."""

import math

import numpy as np
import pytest
from scipy.integrate import quad

from largeprompt.studies.limit import quadrature


def test_two_routes_of_the_gaussian_agree():
    random = np.random.default_rng(0)
    mean, root, u = random.normal(size=2), random.normal(size=(2, 2)), random.normal(size=2)
    tilted = quadrature.mixture_by_tilt(np.ones(1), mean[None], root[None], u)
    np.testing.assert_allclose(quadrature.gaussian_by_grid(mean, root, u), tilted, rtol=1e-12)
    np.testing.assert_allclose(quadrature.gaussian_by_grid(mean, np.zeros((2, 0)), u), mean)


def test_mixture_in_one_dimension_by_adaptive_quadrature():
    shares, means, sizes, u = (
        np.array([0.3, 0.7]),
        np.array([[-1.0], [1.5]]),
        np.array([0.5, 0.8]),
        np.array([0.9]),
    )

    def density(x):
        return sum(
            p / s * math.exp(-((x - m) ** 2) / (2 * s * s))
            for p, m, s in zip(shares, means[:, 0], sizes, strict=True)
        )

    top, bottom = (
        quad(lambda x, k=k: x**k * math.exp(u[0] * x) * density(x), -12, 14)[0] for k in (1, 0)
    )
    found = quadrature.mixture_by_tilt(shares, means, sizes.reshape(2, 1, 1), u)
    assert found[0] == pytest.approx(top / bottom, rel=1e-9)


def test_products_and_sphere_have_their_known_forms():
    u = np.array([0.3, 0.9])
    np.testing.assert_allclose(quadrature.enumerated_signs(u), np.tanh(u), rtol=1e-13)
    np.testing.assert_allclose(
        quadrature.product_by_quadrature("Laplace", u), 2 * u / (2 - u**2), rtol=1e-9
    )
    s = math.sqrt(3) * u
    np.testing.assert_allclose(
        quadrature.product_by_quadrature("uniform", u),
        math.sqrt(3) / np.tanh(s) - 1 / u,
        rtol=1e-10,
    )
    v = np.array([0.3, 0.9, -0.2])  # in R³ the Langevin function
    k = 2.0 * np.linalg.norm(v)
    np.testing.assert_allclose(
        quadrature.sphere_by_quadrature(2.0, v),
        v / np.linalg.norm(v) * 2.0 * (1 / np.tanh(k) - 1 / k),
        rtol=1e-10,
    )
