"""What part of a head's error is due to shape and what to length, what a longer prompt would do,
and whether that came true.
"""

import itertools
from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from largeprompt.audit.expected import expected_affine_error
from largeprompt.audit.kinds import subsets

Array = NDArray[np.float64]
CLOSE = 0.25  # relative deviation of a prediction that counts as close
LEAST_SLOPE = 0.05  # of the law; below, heads select and no length helps


def shape_share(sizes: Array, errors: Array, slope: Array) -> Array:
    """Share of the squared error over all keys that is shape: a/(a + c) in error(n)² = a + c
    (n/N)^-slope, neither term negative.

    Least squares of the relative deviations over numbers ``sizes`` n of keys in the last dimension,
    all N of them last; NaN where fewer than three are known.
    """
    square = errors**2
    known = np.isfinite(square) & (square > 0) & np.isfinite(slope)[..., None]
    noise = (sizes / sizes[..., -1:]) ** -slope[..., None]
    one, line = (
        np.where(known, each / np.where(known, square, 1.0), 0.0)
        for each in (np.ones_like(noise), noise)
    )
    aa, ac, cc, a, c = (
        (x * y).sum(-1)
        for x, y in ((one, one), (one, line), (line, line), (one, known), (line, known))
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        shape, length = np.stack([a * cc - c * ac, c * aa - a * ac]) / (aa * cc - ac**2)
        # shape alone or length alone, whichever is closer
        edge = np.where(a**2 / aa >= c**2 / cc, 1.0, 0.0)
        share = np.where((shape >= 0) & (length >= 0), shape / (shape + length), edge)
    return np.where(known.sum(-1) > 2, share, np.nan)


def law_slope(medians: xr.Dataset) -> xr.DataArray:
    """With which power of the number of keys the squared error of the exact law falls, between a
    quarter of them and all.
    """
    moments = [medians[name] for name in ("score_variance", "tilt", "value_spread")]
    all_keys, quarter = (
        xr.apply_ufunc(expected_affine_error, (medians.weighed_tokens / part).round(), *moments)
        for part in (1, 4)
    )
    known = (quarter / all_keys).where((quarter > 0) & (all_keys > 0))  # one token has no error
    slope: xr.DataArray = (np.log(known) / np.log(4)).clip(LEAST_SLOPE, 1.0)
    return slope


def separated(medians: xr.Dataset, slope: xr.DataArray) -> xr.DataArray:
    """:func:`shape_share` of every head, from medians over the queries for which subsets of keys
    were drawn.
    """
    drawn = subsets(medians)
    if not drawn:
        unknown: xr.DataArray = medians.affine_error.copy(
            data=np.full(medians.affine_error.shape, np.nan)
        )
        return unknown
    errors = np.stack([medians[f"subset_{size}_error"].values for size in (*drawn, "all")], -1)
    sizes = np.stack(
        [
            *(np.full(errors.shape[:-1], float(size)) for size in drawn),
            medians.subset_tokens.values,
        ],
        -1,
    )
    share: xr.DataArray = medians.affine_error.copy(data=shape_share(sizes, errors, slope.values))
    return share


def extrapolated(
    error: xr.DataArray, share: xr.DataArray, slope: xr.DataArray, factor: xr.DataArray
) -> xr.DataArray:
    """Error over ``factor`` times as many keys of the same law: the shape stays, the rest falls
    with the slope.
    """
    found: xr.DataArray = error * np.sqrt(share + (1 - share) * factor**-slope)
    return found


def length_factor(
    error: xr.DataArray, share: xr.DataArray, slope: xr.DataArray, tolerance: float
) -> xr.DataArray:
    """How many times as many keys bring the error down to the tolerance; 1 where it is there, inf
    where shape alone is too much.
    """
    room = (tolerance / error) ** 2 - share
    factor = (((1 - share) / room.where(room > 0)) ** (1 / slope)).where(~(room <= 0), np.inf)
    return factor.where(~(error <= tolerance), 1.0)


class Tested(NamedTuple):
    """What became of predictions made at shorter lengths."""

    made: int  # that a head beyond the tolerance would be within it
    kept: int
    close: float  # share of all predicted errors that are within a quarter of what was seen


def tested(numbers: xr.Dataset, slope: xr.DataArray, tolerance: float) -> Tested:
    """Predictions for every longer length that was read, from every shorter one, compared with what
    was seen.

    Where there are several texts, they are made from every other one and compared with the rest.
    """
    if numbers.sizes.get("length", 1) < 2 or not subsets(numbers):
        return Tested(0, 0, np.nan)
    needed = numbers[
        [
            "affine_error",
            "tokens",
            *(str(name) for name in numbers if str(name).startswith("subset_")),
        ]
    ]
    halves = (
        [needed.isel(text=slice(start, None, 2)) for start in (0, 1)]
        if needed.sizes.get("text", 1) > 1
        else [needed]
    )
    medians = [
        half.median([name for name in ("text", "position") if name in half.dims]) for half in halves
    ]
    made, kept, ratios = 0, 0, list[Array]()
    for here, other in zip(medians, reversed(medians), strict=True):
        known = here.assign(share=separated(here, slope), slope=slope)
        for short, long in itertools.combinations(range(here.sizes["length"]), 2):
            at, then = known.isel(length=short), other.isel(length=long)
            predicted = extrapolated(at.affine_error, at.share, at.slope, then.tokens / at.tokens)
            promised = (at.affine_error > tolerance) & (predicted <= tolerance)
            made, kept = (
                made + int(promised.sum()),
                kept + int((promised & (then.affine_error <= tolerance)).sum()),
            )
            ratios.append((predicted / then.affine_error).values.ravel())
    ratio = np.concatenate(ratios)
    ratio = ratio[np.isfinite(ratio)]
    return Tested(made, kept, float(np.mean(np.abs(ratio - 1) <= CLOSE)) if len(ratio) else np.nan)
