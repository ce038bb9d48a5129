"""What the affine read-out of a head saves: multiplications and cache, counted and not timed."""

import xarray as xr

from largeprompt.audit.kinds import queries


def savings(heads: xr.Dataset, data: xr.Dataset) -> dict[str, xr.DataArray]:
    """Return the shares of each head's operations and cache that its affine read-out saves.

    A token reads n keys of width d and values of width o: n(d + o) multiplications, and as many
    numbers are kept. The read-out adds the token to the d × o matrix Σ k v^T and multiplies the
    query by it, 2do multiplications, and keeps do + d + o numbers. Only models in which no query
    reads keys behind it keep a cache; its share is NaN elsewhere.
    """
    if "key_width" not in heads:
        return {}
    d, o = heads.key_width, heads.value_width
    over = queries(data)
    # its own key is one more than its position, a learned sink another
    causal = (data.tokens - data["query"]).max(over) <= 2
    cached = data.tokens.max(over).where(causal)
    return {
        "saved_operations": 1 - 2 * d * o / (heads.tokens * (d + o)),
        "saved_cache": 1 - (d * o + d + o) / (cached * (d + o)),
    }


def freed_cache(saved: xr.DataArray, chosen: xr.DataArray, group_size: int) -> float:
    """Return the share of the whole cache that is saved where the chosen heads are replaced.

    ``saved`` is the share of each head's cache. ``group_size`` heads, one after another, share
    their keys and values: these go only where all of them are replaced.
    """
    group = chosen["head"].values // group_size
    same = group[:, None] == group
    replaced = (~(chosen.transpose("layer", "head").values > 0) @ same) == 0
    return float((saved.transpose("layer", "head").values * replaced).sum() / replaced.size)
