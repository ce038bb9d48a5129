"""Where a law breaks: the df, and the length, at which E Σ w² passes a multiple of that of Gaussian
tokens.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import xarray as xr
from numpy.typing import NDArray

Array = NDArray[np.float64]
BATCHES = 40  # groups of prompts, for intervals of what is interpolated
FACTOR = 2.0  # a law breaks where E Y is this many times that of Gaussian tokens
SECTIONS = 64  # of an interval in which a length is looked for
# prompts from which a drawn breakdown is judged: fewer seldom hold the rare prompts that it rests
# on
FEWEST = 400


def crossing(df: Array, ratio: Array, level: float = FACTOR) -> float:
    """Largest df at which the ratio, falling to 1 as df grows, is still the level; inf or nan where
    it is not bracketed.
    """
    from scipy.interpolate import PchipInterpolator
    from scipy.optimize import brentq

    above = np.flatnonzero(ratio >= level)
    if not len(above):
        return math.nan
    if above[-1] == len(df) - 1:
        return math.inf
    curve = PchipInterpolator(np.log(df), np.log(ratio))
    return math.exp(
        brentq(
            lambda x: float(curve(x)) - math.log(level),
            math.log(df[above[-1]]),
            math.log(df[above[-1] + 1]),
        )
    )


def first_length(
    ratio: Callable[[Sequence[int]], Array], lengths: Sequence[int], level: float = FACTOR
) -> float:
    """Length from which on the ratio, a function of lengths, passes the level, to one part in a
    thousand; inf if it never does.
    """
    above = np.flatnonzero(ratio(lengths) >= level)
    if not len(above):
        return math.inf
    first = max(int(above[0]), 1)
    low, high = lengths[first - 1], lengths[first]
    while high - low > max(1, high // 1000):  # many lengths cost no more than one
        inner = np.unique(np.linspace(low, high, SECTIONS + 1).round().astype(np.int64)).tolist()
        first = int(np.flatnonzero(np.append(ratio(inner[1:-1]) >= level, True))[0]) + 1
        low, high = inner[first - 1], inner[first]
    return float(high)


def jackknife_error(without: Array) -> float:
    """Standard error of an estimate from its values with one group left out each; NaN unless all
    are finite.
    """
    count = len(without)
    return (
        math.sqrt((count - 1) / count * ((without - without.mean()) ** 2).sum())
        if np.isfinite(without).all()
        else math.nan
    )


def students(data: xr.Dataset, tilt: float) -> xr.Dataset:
    """Student-t cases at one tilt, df > 2 rising, without the Gaussian one."""
    part = data.isel(
        case=np.flatnonzero((data.tilt == tilt) & (data.df > 2) & np.isfinite(data.df))
    )
    return part.sortby("df")


def gaussian(data: xr.Dataset, tilt: float) -> xr.Dataset:
    """The case df = inf."""
    return data.isel(case=int(np.flatnonzero((data.tilt == tilt) & np.isinf(data.df))[0]))


def middle_tilt(data: xr.Dataset) -> float:
    """The tilt that stands for all where one is shown."""
    return float(data.breakdown_tilt[data.sizes["breakdown_tilt"] // 2])


def measured_breakdowns(data: xr.Dataset) -> xr.Dataset:
    """df at which drawn prompts break, with a jackknife standard error, and the exact one through
    the same interpolation.
    """
    tilts, lengths = data.breakdown_tilt.values, data.length.values
    found = np.full((3, len(tilts), len(lengths)), math.nan)
    rest = ~np.eye(BATCHES, dtype=bool)  # all batches but one
    for i, tilt in enumerate(tilts):
        many, one = students(data, tilt), gaussian(data, tilt)
        df = many.df.values
        exact = many.exact.sel(quantity="participation") / one.exact.sel(quantity="participation")
        for j, length in enumerate(lengths):
            y = many.batches.sel(length=length).transpose("case", "batch").values
            base = one.batches.sel(length=length).values
            error = jackknife_error(
                np.array([crossing(df, y[:, keep].mean(-1) / base[keep].mean()) for keep in rest])
            )
            if math.isfinite(error):
                found[:2, i, j] = crossing(df, y.mean(-1) / base.mean()), error
            found[2, i, j] = crossing(df, exact.sel(length=length).values)
    names = ("measured_breakdown", "measured_breakdown_error", "interpolated_breakdown")
    return xr.Dataset(
        {
            name: (("breakdown_tilt", "length"), values)
            for name, values in zip(names, found, strict=True)
        },
        coords={"breakdown_tilt": tilts, "length": lengths},
    )
