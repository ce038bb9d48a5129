"""What counts as short, and as near; and the cases of the outputs by their labels."""

from typing import Any

import numpy as np
import xarray as xr

SHORT = 30
TOLERANCES = (0.5, 0.1)
ATTENTIONS = ("softmax", "linear")


def cases(data: xr.Dataset, **labels: Any) -> xr.Dataset:
    """The cases with these labels."""
    return data.isel(
        case=np.logical_and.reduce([data[name].values == value for name, value in labels.items()])
    )


def isotropic(data: xr.Dataset) -> xr.Dataset:
    """The cases of isotropic tokens, whose direction is any."""
    return cases(data, direction="any")


def ill_conditioned(data: xr.Dataset) -> xr.Dataset:
    """The cases with a weak and a strong direction."""
    return data.isel(case=data.direction.values != "any")


def long_enough(error: xr.DataArray, axis: str, tolerance: float) -> xr.DataArray:
    """Smallest length from which on the error is within the tolerance, up to the longest; infinite
    if there is none.
    """
    following = error[axis].copy(data=np.append(error[axis][1:], np.inf))
    return following.where(error > tolerance, error[axis][0]).max(axis)
