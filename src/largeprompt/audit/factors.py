"""The factor on a head's scores that keeps its effective tokens as the prompt grows."""

import numpy as np
import xarray as xr
from scipy.interpolate import PchipInterpolator

from largeprompt.planning import length_scaling

TIMES = (2, 4, 8)  # lengths, in units of the audited one
FLAT, HIGHEST = 0.01, 2400.0  # variances below which there is no factor, and of the exact law


def with_factors(heads: xr.Dataset) -> xr.Dataset:
    """Add ``factor_2``, ``factor_4`` and ``factor_8`` to a summary of heads.

    They hold for as many keys as a head reads (median over queries), times 2, 4 and 8; see
    :func:`largeprompt.length_scaling`. NaN where scores are flat. Of many heads the exact law is
    asked at one variance an octave; what lies between is interpolated to three digits.
    """
    variance, keys = heads.score_variance, heads.tokens.round()
    known = (variance >= FLAT) & (keys >= 2)
    found = {f"factor_{times}": xr.full_like(variance, np.nan) for times in TIMES}
    for length in np.unique(keys.values[known.values]):
        here = (known & (keys == length)).values
        logs = np.log(np.minimum(variance.values[here], HIGHEST))
        grid, back = np.unique(logs, return_inverse=True)
        count = 2 + int((grid[-1] - grid[0]) / np.log(2))
        few = np.linspace(grid[0], grid[-1], count) if count < len(grid) else grid
        longer = (int(length) * np.array(TIMES))[:, None]
        exact = np.log(length_scaling(longer, int(length), np.exp(few)).numpy())
        for times, one in zip(TIMES, exact, strict=True):
            each = PchipInterpolator(few, one)(grid) if count < len(grid) else one
            found[f"factor_{times}"].values[here] = np.exp(each)[back]
    return heads.assign(found)
