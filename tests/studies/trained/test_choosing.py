"""Intervals and scores of the study of trained transformers."""

import numpy as np
import pytest
import xarray as xr

from largeprompt.studies.trained.choosing import share_interval, z_scores


def test_share_interval_is_clopper_and_pearsons():
    assert share_interval(xr.DataArray([1.0] * 4)) == pytest.approx((1.0, 0.025**0.25, 1.0))
    assert share_interval(xr.DataArray([0.0] * 4)) == pytest.approx((0.0, 0.0, 1 - 0.025**0.25))
    mean, low, high = share_interval(xr.DataArray([[0.5, 1.0], [0.0, 0.5]]))
    assert mean == 0.5
    assert low == pytest.approx(1 - high)


def test_skewness_is_taken_out_of_the_scores():
    """Means of 100 squares of normal numbers: the lower tail of t is ten times too heavy, that of
    the score is not.
    """
    values = np.random.default_rng(0).standard_normal((40_000, 100)) ** 2
    centred = values - values.mean(1, keepdims=True)
    data = xr.Dataset(
        {
            "risk": ("run", values.mean(1)),
            "risk_error": ("run", values.std(1, ddof=1) / 10),
            "risk_skewness": ("run", (centred**3).mean(1) / values.std(1) ** 3),
            "test_prompts": 100,
        }
    )
    raw, score = (data.risk - 1) / data.risk_error, z_scores(data, xr.DataArray(1.0))
    expected = 40_000 * 0.00135  # beyond 3
    assert float((raw < -3).sum()) > 5 * expected
    assert float((score < -3).sum()) < 2.5 * expected
    assert float((score > 3).sum()) < 2.5 * expected
