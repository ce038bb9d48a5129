"""The exact error of the affine read-out with a prompt's own moments, against sampling."""

import math

import pytest
import torch

from largeprompt.audit.own_moments import own_moment_error
from largeprompt.errors import InvalidArgumentError


def test_own_moment_error_against_sampling():
    """False alarms below 1e-8: 5.7 standard errors, twelve comparisons."""
    generator = torch.Generator().manual_seed(3)
    for length, q in ((2, 0.5), (10, 1.0), (40, 1.0), (40, 4.0), (200, 2.0), (200, 0.05)):
        xi = torch.randn(40_000, length, generator=generator, dtype=torch.float64)
        sigma, middle = math.sqrt(q), xi.mean(-1, keepdim=True)
        weights = torch.softmax(sigma * xi, -1)
        along = (
            (weights * xi).sum(-1) - middle.squeeze(-1) - sigma * xi.var(-1, correction=0)
        ) ** 2
        across = (weights - (1 + sigma * (xi - middle)) / length).square().sum(-1)
        for drawn, exact in zip((along, across), own_moment_error(length, q), strict=True):
            assert abs(float(drawn.mean() - exact)) < 6 * float(drawn.std()) / math.sqrt(len(drawn))


def test_own_moment_error_of_one_token_and_bad_input():
    assert [float(value) for value in own_moment_error(1, 2.0)] == [0.0, 0.0]
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(InvalidArgumentError, match="score_variance"):
            own_moment_error(10, bad)
