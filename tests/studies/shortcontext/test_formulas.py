"""F1: the length from which on an error is small, against a search one by one; and cases by their
labels.
"""

import numpy as np
import pytest
import xarray as xr

from largeprompt.studies.shortcontext.formulas import cases, ill_conditioned, isotropic, long_enough


@pytest.mark.parametrize("tolerance", [0.05, 0.3, 0.6, 2.0])
def test_long_enough_is_the_first_length_after_the_last_that_is_not(tolerance):
    lengths = np.array([1, 2, 5, 10, 30])
    errors = np.random.default_rng(0).uniform(0, 1, (50, 5))
    found = long_enough(
        xr.DataArray(errors, {"length": lengths}, ("case", "length")), "length", tolerance
    )
    for row, answer in zip(errors, found.values, strict=True):
        good = [n for i, n in enumerate(lengths) if np.all(row[i:] <= tolerance)]
        assert answer == (good[0] if good else np.inf)


def test_cases_have_all_the_labels():
    data = xr.Dataset(
        coords={"direction": ("case", ["any", "weak", "strong"]), "size": ("case", [1, 1, 2])}
    )
    assert cases(data, direction="weak", size=1).sizes["case"] == 1
    assert cases(data, direction="weak", size=2).sizes["case"] == 0
    assert list(isotropic(data).direction.values) == ["any"]
    assert list(ill_conditioned(data).direction.values) == ["weak", "strong"]
