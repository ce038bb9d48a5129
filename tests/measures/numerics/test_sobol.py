"""Sobol points have the moments of the normal law."""

import torch

import largeprompt as lp
from largeprompt.measures import sobol_points


def test_sobol_points_have_the_moments():
    for mu in (
        lp.Gaussian([1.0, -1.0], [[1.0, 0.6], [0.6, 1.0]]),
        lp.GaussianMixture([0.3, 0.7], [[-1.0], [1.0]], [[[0.5]], [[0.3]]]),
    ):
        points = sobol_points(mu, 4096, 3)
        assert points.shape == (4096, mu.dim)
        assert float((points.mean(0) - mu.mean).abs().max()) < 3e-3
        assert float((points.mT.cov() - mu.covariance).abs().max()) < 1e-2
    assert not torch.equal(sobol_points(mu, 64, 0), sobol_points(mu, 64, 1))
