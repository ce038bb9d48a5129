"""C3: the exponent of the query-averaged error: closed values, continuity, and the factor of the
query's radius.
"""

import math

import numpy as np
import pytest
import xarray as xr

from largeprompt.studies.exponent.formulas import sharp_exponent, without_logarithm


def test_exponent_is_one_up_to_a_half_and_falls_after():
    np.testing.assert_allclose(sharp_exponent(np.array([0.0, 0.2, 0.5])), 1.0)
    assert sharp_exponent(2.0) == pytest.approx(math.sqrt(0.75) - 0.5)
    beyond = sharp_exponent(np.linspace(0.5, 20, 100))
    assert np.all(np.diff(beyond) < 0)
    # g solves g² + g = 1/H²
    np.testing.assert_allclose(beyond**2 + beyond, 1 / np.linspace(0.5, 20, 100))


def test_a_power_with_its_logarithm_gives_the_power_back():
    """Local exponents of L^-g (ln L)^{(d-1)/2} between the decades 14 and 15, corrected: g up to
    the next order in 1/ln L.
    """
    decades, dims, power = np.array([13.0, 14.0, 15.0]), np.array([1, 3]), 0.8
    logs = decades * math.log(10)
    value = -power * logs + np.multiply.outer((dims - 1) / 2, np.log(logs))
    exponent = -np.diff(value, axis=-1) / np.diff(logs)
    data = xr.Dataset(
        {"exponent": (("dim", "square", "decade_end"), np.stack([exponent, exponent], 1))},
        {"dim": dims, "square": [0.4, 0.7], "decade": decades, "decade_end": decades[1:]},
    )
    found = without_logarithm(data)
    np.testing.assert_allclose(found.sel(square=0.7), power, atol=1e-4)
    # nothing to add below a half
    np.testing.assert_allclose(found.sel(square=0.4), exponent[:, -1])
