"""Which part of a head's affine error is due to the shape of its keys, and which to their number.

Random subsets of the keys are shorter prompts of the same law: what changes with their size is due
to length, and what stays is due to shape.
"""

import re

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from largeprompt.audit import Heads
from largeprompt.studies.own_moments import expected_affine_error

Array = NDArray[np.float64]
SMALLEST = 64  # keys in a subset; below, half of them are the two that every subset keeps
LEAST_SLOPE = 0.05  # of the law; below, heads select and no length helps


def subset_sizes(keys: int) -> list[int]:
    """Return 64, 128, ... as far as they fit twice; 32 and 64 where 64 alone does."""
    found = [SMALLEST << step for step in range(32) if SMALLEST << (step + 1) <= keys]
    return [SMALLEST // 2, *found] if len(found) == 1 else found


def subset_errors(heads: Heads, positions: Tensor) -> dict[str, Tensor]:
    """Relative affine error over random subsets of the keys of causal heads of one text.

    The first and the last key of a query stay in every subset, as every prompt has them. Returns
    ``subset_N_error`` for each size N (lower median over the subsets), ``subset_all_error`` and
    ``subset_tokens``, each (1, heads, positions); nothing where there are too few keys.
    """
    numbers = (positions + 1).tolist()
    sizes = subset_sizes(min(numbers))
    if not sizes:
        return {}
    keys = heads.key.shape[2]
    chance = torch.rand(len(numbers), keys, generator=torch.Generator().manual_seed(0))
    found: dict[str, list[Tensor]] = {f"subset_{size}_error": [] for size in [*sizes, "all"]}
    for place, number in enumerate(numbers):
        order = 1 + chance[place, 1 : number - 1].argsort().to(heads.key.device)
        ends = torch.tensor([0, number - 1], device=order.device)
        rows = heads.at(positions[place : place + 1]).scored()
        for size in sizes:
            count = (number - 2) // (size - 2)
            others = order[: count * (size - 2)].unflatten(0, (count, -1))
            which = torch.cat([ends.expand(count, -1), others], 1)
            errors = _affine_error(rows.scores[0, :, 0], rows.value[0], which)
            found[f"subset_{size}_error"].append(errors.median(-1).values)
        every = torch.arange(number, device=order.device)[None]
        whole = _affine_error(rows.scores[0, :, 0], rows.value[0], every)
        found["subset_all_error"].append(whole.squeeze(-1))
    result = {name: torch.stack(each, -1)[None].double().cpu() for name, each in found.items()}
    tokens = torch.tensor(numbers, dtype=torch.float64)
    return result | {"subset_tokens": tokens.expand(1, heads.count, -1)}


def _affine_error(scores: Tensor, value: Tensor, which: Tensor) -> Tensor:
    """Relative error over each subset of the keys, (heads, subsets); ``which`` are (subsets, n)."""
    s = scores[:, which].unflatten(0, (len(value), -1)).transpose(1, 2)  # (g, subsets, h/g, n)
    weights = torch.softmax(s, -1)
    affine = (1 + s - s.mean(-1, keepdim=True)) / s.shape[-1]
    read = torch.cat([weights - affine, weights], 2) @ value[:, which]
    missed, output = read.square().sum(-1).chunk(2, 2)
    return (missed / output).sqrt().transpose(1, 2).flatten(0, 1)


def subsets(data: xr.Dataset) -> list[int]:
    """Return the sizes of the subsets that were drawn, ascending."""
    names = (re.fullmatch(r"subset_(\d+)_error", str(name)) for name in data)
    return sorted(int(found[1]) for found in names if found)


def shape_share(sizes: Array, errors: Array, slope: Array) -> Array:
    """Share a/(a + c) of the squared error over all keys in error(n)² = a + c (n/N)^-slope.

    Least squares of the relative deviations over the numbers ``sizes`` n of keys in the last
    dimension, all N of them last; a and c are not negative. NaN where fewer than three are known.
    """
    square = errors**2
    known = np.isfinite(square) & (square > 0) & np.isfinite(slope)[..., None]
    noise = (sizes / sizes[..., -1:]) ** -slope[..., None]
    one, line = (
        np.where(known, each / np.where(known, square, 1.0), 0.0)
        for each in (np.ones_like(noise), noise)
    )
    pairs = ((one, one), (one, line), (line, line), (one, known), (line, known))
    aa, ac, cc, a, c = ((x * y).sum(-1) for x, y in pairs)
    with np.errstate(divide="ignore", invalid="ignore"):
        shape, length = np.stack([a * cc - c * ac, c * aa - a * ac]) / (aa * cc - ac**2)
        edge = np.where(a**2 / aa >= c**2 / cc, 1.0, 0.0)  # one of the two alone: the closer one
        share = np.where((shape >= 0) & (length >= 0), shape / (shape + length), edge)
    return np.where(known.sum(-1) > 2, share, np.nan)


def law_slope(medians: xr.Dataset) -> xr.DataArray:
    """Power of the number of keys with which the squared error of the exact law falls.

    Measured between a quarter of the keys and all of them, at the moments of the head.
    """
    moments = [medians[name] for name in ("score_variance", "tilt", "value_spread")]
    all_keys, quarter = (
        xr.apply_ufunc(expected_affine_error, (medians.tokens / part).round(), *moments)
        for part in (1, 4)
    )
    known = (quarter / all_keys).where((quarter > 0) & (all_keys > 0))  # one token has no error
    slope: xr.DataArray = (np.log(known) / np.log(4)).clip(LEAST_SLOPE, 1.0)
    return slope


def separated(medians: xr.Dataset) -> xr.Dataset:
    """Return ``medians`` with ``law_slope`` and with the ``shape_share`` of every head."""
    medians = medians.assign(law_slope=law_slope(medians))
    drawn, error = subsets(medians), medians.affine_error
    if not drawn:
        return medians.assign(shape_share=xr.full_like(error, np.nan))
    errors = [medians[f"subset_{size}_error"].values for size in (*drawn, "all")]
    sizes = [np.full(error.shape, float(size)) for size in drawn]
    sizes.append(medians.subset_tokens.values)
    share = shape_share(np.stack(sizes, -1), np.stack(errors, -1), medians.law_slope.values)
    return medians.assign(shape_share=error.copy(data=share))


def extrapolated(
    error: xr.DataArray, share: xr.DataArray, slope: xr.DataArray, factor: xr.DataArray
) -> xr.DataArray:
    """Error over ``factor`` times as many keys of the same law: the shape stays, the rest falls."""
    found: xr.DataArray = error * np.sqrt(share + (1 - share) * factor**-slope)
    return found
