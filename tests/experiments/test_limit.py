"""The quadratures that the limit is compared with, each against something simpler, and the sampled part."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from small_studies import dataset

from largeprompt.studies.limit import quadrature


def test_two_routes_of_the_gaussian_agree():
    random = np.random.default_rng(0)
    mean, root, u = random.normal(size=2), random.normal(size=(2, 2)), random.normal(size=2)
    np.testing.assert_allclose(quadrature.gaussian_by_grid(mean, root, u), quadrature.gaussian_by_tilt(mean, root, u), rtol=1e-12)
    np.testing.assert_allclose(quadrature.gaussian_by_grid(mean, np.zeros((2, 0)), u), mean)


def test_mixture_in_one_dimension_by_adaptive_quadrature():
    shares, means, sizes, u = np.array([0.3, 0.7]), np.array([[-1.0], [1.5]]), np.array([0.5, 0.8]), np.array([0.9])

    def density(x):
        return sum(p / s * math.exp(-((x - m) ** 2) / (2 * s * s)) for p, m, s in zip(shares, means[:, 0], sizes, strict=True))

    top, bottom = (quad(lambda x, k=k: x**k * math.exp(u[0] * x) * density(x), -12, 14)[0] for k in (1, 0))
    found = quadrature.mixture_by_tilt(shares, means, sizes.reshape(2, 1, 1), u)
    assert found[0] == pytest.approx(top / bottom, rel=1e-9)


def test_products_and_sphere_have_their_known_forms():
    u = np.array([0.3, 0.9])
    np.testing.assert_allclose(quadrature.enumerated_signs(u), np.tanh(u), rtol=1e-13)
    np.testing.assert_allclose(quadrature.product_by_quadrature("Laplace", u), 2 * u / (2 - u**2), rtol=1e-9)
    s = math.sqrt(3) * u
    np.testing.assert_allclose(quadrature.product_by_quadrature("uniform", u), math.sqrt(3) / np.tanh(s) - 1 / u, rtol=1e-10)
    v = np.array([0.3, 0.9, -0.2])  # in R³ the Langevin function
    k = 2.0 * np.linalg.norm(v)
    np.testing.assert_allclose(
        quadrature.sphere_by_quadrature(2.0, v), v / np.linalg.norm(v) * 2.0 * (1 / np.tanh(k) - 1 / k), rtol=1e-10
    )


def test_sampled_error_follows_the_prediction():
    """At L = 3000 the first order is within 2 %, and the drawn error within 6.5 standard errors of that."""
    at = dataset("limit").sel(length=3000)
    assert np.all(abs(at.mse - at.first_order_mse) < 6.5 * at.mse_standard_error + 0.02 * at.first_order_mse)


def test_gap_is_zero_for_gaussian_tokens_only():
    gap = dataset("limit").gap
    assert float(gap.sel(law="Gaussian")) < 1e-12
    assert np.all(gap.sel(law=["Rademacher", "two clusters"]) > 0.01)


def test_affine_map_misses_mixtures_and_not_gaussians():
    error = dataset("limit").affine_error
    assert float(error.sel(kind="regular").max()) < 1e-12
    assert float(error.sel(kind="mixture").min()) > 0.01
