"""N2: extrapolation to step size 0 and the small choices that rules and figures share."""

import numpy as np
import pytest
import xarray as xr

from largeprompt.studies.discrete.formulas import at_zero, most_common, usual


def test_a_line_is_extrapolated_from_its_two_smallest_steps_whatever_their_order():
    steps = xr.DataArray(
        [0.1, 0.4, 0.2], dims="step", coords={"step": [0.1, 0.4, 0.2]}, name="step"
    )
    ratio = xr.DataArray(
        [[1.3, 99.0, 1.6], [2.0, 99.0, 2.0]], dims=("length", "step"), coords={"step": steps}
    )
    np.testing.assert_allclose(at_zero(steps, ratio), [1.0, 2.0])


def test_usual_values():
    assert usual(xr.Dataset(coords={"adam_step_size": [1e-2, 2e-3, 1e-4]})) == 1e-4
    assert usual(xr.Dataset(coords={"adam_step_size": [1e-2, 1.2e-3]})) == 1.2e-3
    assert most_common(xr.DataArray([3.0, 1.0, 3.0, 1.0, 2.0])) == 1.0


def test_one_step_size_cannot_be_extrapolated():
    """A ValueError, which is judged as undecided."""
    one = xr.DataArray([0.1], dims="step", coords={"step": [0.1]}, name="step")
    with pytest.raises(ValueError, match="unpack"):
        at_zero(one, xr.DataArray([1.0], dims="step", coords={"step": one}))
