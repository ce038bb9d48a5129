"""Kinds of heads and names in an audit's dataset, for rules and figures, which do without torch."""

import xarray as xr

FINDINGS = ("moments", "needs a longer prompt", "few clusters", "selects", "other shape")
READ_OUTS = ("mean", "affine", "third", "fourth")


def mixtures(data: xr.Dataset) -> list[int]:
    """Numbers of components that were tried, ascending."""
    names = [str(name) for name in data if str(name).startswith("mixture_") and str(name).endswith("_error")]
    return sorted(int(name.split("_")[1]) for name in names)


def longest(data: xr.Dataset) -> xr.Dataset:
    """The dataset at the longest of its prompt lengths."""
    return data.isel(length=-1) if "length" in data.dims else data
