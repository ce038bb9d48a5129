"""Batches of laws: each member as if it stood alone."""

import pytest
import torch
from torch.testing import assert_close

import largeprompt as lp

F = torch.float64


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F)


ROOTS = draw(4, 2, 2, seed=1)
COVARIANCES = ROOTS @ ROOTS.mT
CASES = {
    "gaussian": (lp.Gaussian(draw(4, 2), COVARIANCES), lambda i: lp.Gaussian(draw(4, 2)[i], COVARIANCES[i])),
    "gaussian, one covariance": (lp.Gaussian(draw(4, 2), COVARIANCES[0]), lambda i: lp.Gaussian(draw(4, 2)[i], COVARIANCES[0])),
    "mixture": (
        lp.GaussianMixture([[0.3, 0.7]] * 4, draw(4, 2, 2, seed=2), COVARIANCES[:2]),
        lambda i: lp.GaussianMixture([0.3, 0.7], draw(4, 2, 2, seed=2)[i], COVARIANCES[:2]),
    ),
    "discrete": (
        lp.Discrete(draw(3, 2), torch.softmax(draw(4, 3, seed=3), -1)),
        lambda i: lp.Discrete(draw(3, 2), torch.softmax(draw(4, 3, seed=3), -1)[i]),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_members(name):
    many, one = CASES[name]
    assert many.batch_shape == (4,)
    u = draw(4, 2, seed=4)
    for i in range(4):
        assert_close(many.cgf(u)[i], one(i).cgf(u[i]))
        assert_close(many.tilted_mean(u)[i], one(i).tilted_mean(u[i]))
        assert_close(many.tilted_covariance(u)[i], one(i).tilted_covariance(u[i]))
        assert_close(many.norm_moment4(u)[i], one(i).norm_moment4(u[i]))
        assert_close(many.tilt(u).mean[i], one(i).tilt(u[i]).mean)
        assert_close(many.map(ROOTS[0]).covariance[i], one(i).map(ROOTS[0]).covariance)
        assert_close(lp.Measure.tilted_mean(many, u)[i], one(i).tilted_mean(u[i]))
    assert many.sample(5, torch.Generator()).shape == (4, 5, 2)
    assert many.sample_tilted(u, 5, torch.Generator()).shape == (4, 5, 2)


def test_gaussian_samples_of_a_batch_have_their_own_moments():
    many, _ = CASES["gaussian"]
    tokens = many.sample(200_000, torch.Generator().manual_seed(0))
    centred = tokens - many.mean.unsqueeze(-2)
    covariance = centred.mT @ centred / 200_000
    # entries of a sample covariance have standard deviation at most sqrt(2/n) times the largest variance
    bound = 6.5 * (2 / 200_000) ** 0.5 * many.covariance.amax(dim=(-2, -1))
    assert bool(((covariance - many.covariance).abs().amax(dim=(-2, -1)) < bound).all())
