"""What the rules and figures of the study `discrete` share."""

import numpy as np
import xarray as xr

# relative error of a predicted coefficient, as the step size tends to 0, that counts as agreement
COEFFICIENT = 0.02
SLOPE = 0.1  # error of a measured exponent that does


def at_zero(x: xr.DataArray, ratio: xr.DataArray) -> xr.DataArray:
    """Ratios extrapolated to step size 0 from the two smallest ones, where it is linear in the step
    size.
    """
    ordered = ratio.sortby(x.name)
    first, second = (float(value) for value in np.sort(x.values)[:2])
    return ordered[..., 0] + (ordered[..., 0] - ordered[..., 1]) * first / (second - first)


def usual(data: xr.Dataset) -> float:
    """The step size of Adam nearest to PyTorch's default, 1e-3."""
    steps = data.adam_step_size.values
    return float(steps[np.argmin(np.abs(steps - 1e-3))])


def most_common(values: xr.DataArray) -> float:
    """The value that occurs most often, the least of them if several do."""
    found, counts = np.unique(values.values, return_counts=True)
    return float(found[counts.argmax()])
