"""Gaussian mixtures: densities integrated on the line and in the plane, and one component."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.testing.strategies import covariances, vectors

EVEN = settings(deadline=None, max_examples=60, derandomize=True)
dims = st.integers(1, 4)


def close(a, b):
    assert_close(a, b, rtol=1e-9, atol=1e-9)


@EVEN
@given(st.data(), dims)
def test_one_component_is_a_gaussian(data, d):
    mean, covariance, u = data.draw(vectors(d)), data.draw(covariances(d)), data.draw(vectors(d))
    gaussian, mixture = (
        lp.Gaussian(mean, covariance),
        lp.GaussianMixture([1.0], mean[None], covariance[None]),
    )
    close(mixture.cgf(u), gaussian.cgf(u))
    close(mixture.tilted_mean(u), gaussian.tilted_mean(u))
    close(mixture.tilted_covariance(u), gaussian.tilted_covariance(u))
    close(mixture.norm_moment4(u), gaussian.norm_moment4(u))


@pytest.mark.parametrize("tilt", [-1.3, -1e-3, 0.0, 0.01, 0.7, 1.2])
def test_against_the_density(tilt, has_density):
    mu = lp.GaussianMixture([0.3, 0.7], [[-2.0], [1.0]], [[[0.25]], [[1.0]]])
    has_density(
        mu,
        lambda x: 0.3 * stats.norm.pdf(x, -2, 0.5) + 0.7 * stats.norm.pdf(x, 1, 1),
        (-30, 30),
        tilt,
    )


def test_correlated_gaussian_mixture_in_the_plane():
    means, roots = (
        np.array([[1.0, 0.0], [-1.0, 0.5]]),
        np.array([[[1.0, 0.0], [0.6, 0.5]], [[0.7, 0.0], [-0.2, 0.9]]]),
    )
    covariances = roots @ roots.transpose(0, 2, 1)
    mu = lp.GaussianMixture([0.4, 0.6], means, covariances)
    u = np.array([0.5, -0.8])
    parts = [stats.multivariate_normal(m, c) for m, c in zip(means, covariances, strict=True)]
    # the trapezoid rule is spectrally accurate for such integrands
    grid = np.linspace(-12, 12, 1601)
    x, y = np.meshgrid(grid, grid, indexing="ij")
    points = np.stack([x, y], -1)
    weight = (
        (0.4 * parts[0].pdf(points) + 0.6 * parts[1].pdf(points))
        * np.exp(points @ u)
        * (grid[1] - grid[0]) ** 2
    )
    mass = weight.sum()
    mean = np.einsum("ij,ijk->k", weight, points) / mass
    centered = points - mean
    covariance = np.einsum("ij,ijk,ijl->kl", weight, centered, centered) / mass
    np.testing.assert_allclose(mu.cgf(u), math.log(mass), rtol=1e-11)
    np.testing.assert_allclose(mu.tilted_mean(u), mean, rtol=1e-11)
    np.testing.assert_allclose(mu.tilted_covariance(u), covariance, rtol=1e-10, atol=1e-12)
    # the tilt does something
    assert float(mu.tilted_mean(u)[0]) != pytest.approx(float(mu.mean[0]), abs=0.1)
