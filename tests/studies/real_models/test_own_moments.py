"""The exact error of the affine read-out with a prompt's own moments, against drawn prompts."""

import math

import numpy as np
import pytest
import torch

from largeprompt.audit import Heads, head_statistics
from largeprompt.studies.real_models.own_moments import expected_affine_error, own_moment_error


def test_own_moment_error_against_sampling():
    """False alarms below 1e-8: 5.7 standard errors, eight comparisons."""
    generator = torch.Generator().manual_seed(3)
    for length, q in ((2, 0.5), (10, 1.0), (40, 4.0), (200, 0.05)):
        xi = torch.randn(40_000, length, generator=generator, dtype=torch.float64)
        sigma, middle = math.sqrt(q), xi.mean(-1, keepdim=True)
        weights = torch.softmax(sigma * xi, -1)
        along = (
            (weights * xi).sum(-1) - middle.squeeze(-1) - sigma * xi.var(-1, correction=0)
        ) ** 2
        across = (weights - (1 + sigma * (xi - middle)) / length).square().sum(-1)
        for drawn, exact in zip((along, across), own_moment_error(length, q), strict=True):
            assert abs(float(drawn.mean() - exact)) < 6 * float(drawn.std()) / math.sqrt(len(drawn))


def test_own_moment_error_of_one_token():
    assert [float(value) for value in own_moment_error(1, 2.0)] == [0.0, 0.0]


@pytest.mark.parametrize("count", [7, 400])
def test_the_table_of_the_law_is_the_law(count):
    """Few variances are computed one by one, of many some are interpolated."""
    variance = np.geomspace(1e-3, 300.0, count)
    for length in (2, 30, 512, 8192):
        along, across = (value.numpy() for value in own_moment_error(length, variance))
        tilt, spread = 0.3 * variance, np.full(len(variance), 2.0)
        found = expected_affine_error(np.full(len(variance), length), variance, tilt, spread)
        np.testing.assert_allclose(found, along * 0.3 + across * (spread - 0.3), rtol=2e-3)


@pytest.mark.parametrize("variance", [0.3, 6.0, 30.0])
def test_the_law_explains_all_of_a_gaussian_head(variance):
    """Measured over expected squared error, mean over 400 texts: 1 within sampling error."""
    draw = torch.Generator().manual_seed(1)
    joint = torch.randn(400, 1, 100, 16, generator=draw, dtype=torch.float64)
    joint = joint @ torch.randn(16, 16, generator=draw, dtype=torch.float64) / 4
    key, value = joint[..., :8], joint[..., 8:]
    query = torch.randn(400, 1, 1, 8, generator=draw, dtype=torch.float64)
    query = query * math.sqrt(variance) / (query @ key.mT).var(-1, keepdim=True).sqrt()
    raw = head_statistics(Heads(query, key, value, None, 1.0), torch.tensor([0]))
    moments = (raw[name].numpy() for name in ("tokens", "score_variance", "tilt", "value_spread"))
    ratio = (raw["affine_error"].numpy() / expected_affine_error(*moments)).ravel()
    # fluctuating moments of the sample shift the expectation by O(1/L): 5 % at L = 100
    assert abs(ratio.mean() - 1) < 0.08 + 5 * ratio.std() / math.sqrt(len(ratio))
