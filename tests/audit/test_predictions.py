"""Shape apart from length, and what that predicts."""

import numpy as np
import xarray as xr

from largeprompt.audit.predictions import extrapolated, law_slope, length_factor, shape_share

SIZES = np.array([64.0, 128.0, 256.0, 512.0])


def test_both_parts_come_back():
    for slope, shape, noise in ((1.0, 0.3, 5.0), (0.6, 0.1, 2.0), (1.0, 0.0, 3.0), (0.8, 0.5, 0.0)):
        square = shape**2 + noise * SIZES**-slope
        found = shape_share(SIZES, np.sqrt(square), np.array(slope))
        np.testing.assert_allclose(found, shape**2 / square[-1], atol=1e-6)


def test_what_rises_with_length_is_shape_and_too_few_sizes_tell_nothing():
    assert float(shape_share(SIZES, np.array([0.2, 0.25, 0.3, 0.4]), np.array(1.0))) == 1.0
    assert np.isnan(shape_share(SIZES[2:], np.array([0.3, 0.2]), np.array(1.0)))
    assert np.isnan(shape_share(SIZES, np.array([np.nan, np.nan, 0.3, 0.2]), np.array(1.0)))


def test_the_needed_length_is_where_the_extrapolation_meets_the_tolerance():
    error, share, slope = (
        xr.DataArray(each)
        for each in ([0.5, 0.3, 0.5, 0.1], [0.05, 0.2, 0.9, 0.9], [1.0, 0.7, 1.0, 1.0])
    )
    factor = length_factor(error, share, slope, 0.2)
    np.testing.assert_allclose(extrapolated(error, share, slope, factor)[:2], 0.2, rtol=1e-9)
    assert np.isinf(factor[2])
    assert factor[3] == 1


def test_the_slope_of_the_law_is_one_where_it_is_linear_and_small_where_it_is_frozen():
    slope = law_slope(
        xr.Dataset(
            {
                name: ("head", each)
                for name, each in (
                    ("weighed_tokens", [4096.0, 4096.0]),
                    ("score_variance", [0.2, 60.0]),
                    ("tilt", [0.1, 30.0]),
                    ("value_spread", [1.0, 1.0]),
                )
            }
        )
    )
    assert abs(float(slope[0]) - 1) < 0.05
    assert float(slope[1]) < 0.2
