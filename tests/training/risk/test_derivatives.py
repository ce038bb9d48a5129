"""Gradients and Hessians of several runs, and through a map."""

import torch
from torch.testing import assert_close
from training_examples import draw

from largeprompt.training.risk.derivatives import differentiated, pulled


def function(point):
    return (point[:, 0] * point[:, 1] ** 2).exp() + point[:, 2] ** 3


def layer(theta):
    """Three numbers from two, curved."""
    return torch.stack([theta[:, 0] * theta[:, 1], theta[:, 1] ** 2, theta[:, 0]], -1)


def test_derivatives_are_those_of_each_run():
    points = draw(4, 3) / 2
    found = differentiated(function)(points, True)
    for i, point in enumerate(points):
        one = torch.autograd.functional.hessian(lambda x: function(x[None])[0], point)
        assert_close(found.hessian[i], one)
    assert differentiated(function)(points, False).hessian is None
    assert_close(found.value, function(points))


def test_derivatives_go_through_a_curved_map():
    theta = draw(3, 2) / 2
    whole = differentiated(lambda one: function(layer(one)))(theta, True)
    through = pulled(layer, differentiated(function))(theta, True)
    for name in ("value", "gradient", "hessian"):
        assert_close(getattr(through, name), getattr(whole, name))
    assert pulled(layer, differentiated(function))(theta, False).hessian is None
