"""What the affine read-out of a head saves: operations for each token, and numbers in the cache."""

from typing import Any

import numpy as np
import xarray as xr

from largeprompt.audit.kinds import looks_back

LONGER = 8  # times the length at which savings are given too, where the model reads so many tokens


def saved_operations(keys: Any, key_width: Any, value_width: Any) -> Any:
    """1 - 2do/(n(d + o)): share of the multiplications that a read-out of moments saves; below 0
    where it costs more.

    A token reads n keys of width d and values of width o, n(d + o) multiplications; the read-out
    adds the token to the d × o matrix Σ k v^T and multiplies the query by it.
    """
    return 1 - 2 * key_width * value_width / (keys * (key_width + value_width))


def saved_cache(keys: Any, key_width: Any, value_width: Any) -> Any:
    """1 - (do + d + o)/(n(d + o)): share of the numbers kept for n tokens that the moments do
    without.

    Heads that share keys and values share their cache: it goes only where all of them are replaced
    (see :func:`freed_cache`).
    """
    state = key_width * value_width + key_width + value_width
    return 1 - state / (keys * (key_width + value_width))


def savings(heads: xr.Dataset, data: xr.Dataset) -> dict[str, xr.DataArray]:
    """Shares of each head's operations and cache that are saved at this length, and (``_longer``)
    at ``longer_length``.

    That is eight times the length, or as much of it as the model reads; where it reads no more than
    this length, and for heads with a window, which sees no more keys, there is nothing to add. Only
    models in which no query reads keys behind it keep a cache.

    Parameters
    ----------
    heads
        Medians of the heads, with ``tokens``, ``key_width`` and ``value_width``.
    data
        What they are medians of.

    Returns
    -------
    dict of str to DataArray
        By the names of the variables; NaN for what is not there.
    """
    if "key_width" not in heads:
        return {}
    over = [name for name in ("text", "position") if name in data.dims]
    seen = data.tokens.max(over)
    whole = xr.zeros_like(seen) + (
        data.length if "length" in data.dims else float(data.attrs.get("tokens", 0.0))
    )
    whole = whole.where(whole > 0, seen)
    longer = np.minimum(LONGER * whole, float(data.attrs.get("positions_allowed", np.inf)))
    longer = longer.where((longer > whole) & (seen >= whole))
    found = {"longer_length": longer}
    for name, saved, keys in (
        ("operations", saved_operations, heads.tokens),
        ("cache", saved_cache, seen.where(looks_back(data))),
    ):
        for end, number in (("", keys), ("_longer", keys * longer / whole)):
            found[f"saved_{name}{end}"] = saved(number, heads.key_width, heads.value_width)
    return found


def freed_cache(saved: xr.DataArray, chosen: xr.DataArray, group_size: int) -> float:
    """Share of the whole cache that is saved where the chosen heads are replaced, heads of a group
    sharing their keys and values.

    Parameters
    ----------
    saved
        Share of each head's cache, dimensions layer and head.
    chosen
        Whether the head is replaced, with the same dimensions.
    group_size
        How many heads, one after another, share a cache.

    Returns
    -------
    float
        Between 0 and 1 where no head's share is negative; NaN where there is no cache.
    """
    group = chosen["head"].values // group_size
    same = group[:, None] == group
    replaced = (~(chosen.transpose("layer", "head").values > 0) @ same) == 0
    return float((saved.transpose("layer", "head").values * replaced).sum() / replaced.size)
