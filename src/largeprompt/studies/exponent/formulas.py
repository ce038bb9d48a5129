"""The exponent predicted for random queries, and what the query's radius adds to it at finite
length.
"""

import math

import xarray as xr

from largeprompt.studies.lengths import sharp_exponent as sharp_exponent


def without_logarithm(data: xr.Dataset) -> xr.DataArray:
    """Last local exponents, with (d-1)/(2 ln L) added where H² >= 1/2; (dim, square).

    There queries of norm r ~ √(ln L) set the error, and their density r^{d-1} is a factor (ln
    L)^{(d-1)/2}.
    """
    middle = (float(data.decade[-1]) + float(data.decade[-2])) / 2 * math.log(10)
    corrected: xr.DataArray = data.exponent.isel(decade_end=-1) + (data.dim - 1) / (2 * middle) * (
        data.square >= 0.5
    )
    return corrected
