"""Closed forms against SciPy's numerical integration of the densities, in one and two dimensions."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

import largeprompt as lp

F = torch.float64

SCALAR = {
    "gaussian": (lp.Gaussian([0.4], [[1.7]]), lambda x: stats.norm.pdf(x, 0.4, math.sqrt(1.7)), (-30, 30)),
    "mixture": (
        lp.GaussianMixture([0.3, 0.7], [[-2.0], [1.0]], [[[0.25]], [[1.0]]]),
        lambda x: 0.3 * stats.norm.pdf(x, -2, 0.5) + 0.7 * stats.norm.pdf(x, 1, 1),
        (-30, 30),
    ),
    "uniform": (lp.Uniform(1), lambda x: 1 / (2 * math.sqrt(3)), (-math.sqrt(3), math.sqrt(3))),
    "laplace": (lp.Laplace(1), lambda x: math.exp(-math.sqrt(2) * abs(x)) / math.sqrt(2), (-400, 400)),
    "normal as t": (lp.StudentT(1, math.inf), stats.norm.pdf, (-30, 30)),
}


@pytest.mark.parametrize("name", SCALAR)
@pytest.mark.parametrize("u", [-1.3, -1e-3, 0.0, 0.01, 0.7, 1.2])
def test_scalar_laws(name, u):
    mu, density, (low, high) = SCALAR[name]

    def moment(f):
        kinks = [point for point in (0.0,) if low < point < high]
        return integrate.quad(
            lambda x: f(x) * math.exp(u * x) * density(x), low, high, points=kinks, epsabs=1e-13, epsrel=1e-12, limit=1000
        )[0]

    mass = moment(lambda x: 1.0)
    mean = moment(lambda x: x) / mass
    variance = moment(lambda x: (x - mean) ** 2) / mass
    fourth = moment(lambda x: (x - 0.3) ** 4) / mass
    tilt = torch.tensor([u], dtype=F)
    np.testing.assert_allclose(mu.cgf(tilt), math.log(mass), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(mu.tilted_mean(tilt), [mean], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(mu.tilted_covariance(tilt), [[variance]], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(mu.tilt(tilt).norm_moment4([0.3]), fourth, rtol=1e-9, atol=1e-10)


def test_correlated_gaussian_mixture_in_the_plane():
    means, roots = np.array([[1.0, 0.0], [-1.0, 0.5]]), np.array([[[1.0, 0.0], [0.6, 0.5]], [[0.7, 0.0], [-0.2, 0.9]]])
    covariances = roots @ roots.transpose(0, 2, 1)
    mu = lp.GaussianMixture([0.4, 0.6], means, covariances)
    u = np.array([0.5, -0.8])
    parts = [stats.multivariate_normal(m, c) for m, c in zip(means, covariances, strict=True)]
    grid = np.linspace(-12, 12, 1601)  # the trapezoid rule is spectrally accurate for such integrands
    x, y = np.meshgrid(grid, grid, indexing="ij")
    points = np.stack([x, y], -1)
    weight = (0.4 * parts[0].pdf(points) + 0.6 * parts[1].pdf(points)) * np.exp(points @ u) * (grid[1] - grid[0]) ** 2
    mass = weight.sum()
    mean = np.einsum("ij,ijk->k", weight, points) / mass
    centred = points - mean
    covariance = np.einsum("ij,ijk,ijl->kl", weight, centred, centred) / mass
    np.testing.assert_allclose(mu.cgf(u), math.log(mass), rtol=1e-11)
    np.testing.assert_allclose(mu.tilted_mean(u), mean, rtol=1e-11)
    np.testing.assert_allclose(mu.tilted_covariance(u), covariance, rtol=1e-10, atol=1e-12)
    assert float(mu.tilted_mean(u)[0]) != pytest.approx(float(mu.mean[0]), abs=0.1)  # the tilt does something


@pytest.mark.parametrize("dim", [2, 3, 6])
@pytest.mark.parametrize("k", [0.01, 0.8, 5.0, 60.0])
def test_sphere_by_its_height(dim, k):
    """The height t = x·u/(r‖u‖) of a uniform point has density ∝ (1-t²)^{(d-3)/2}; with t = cos θ it is sin^{d-2} θ."""
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
