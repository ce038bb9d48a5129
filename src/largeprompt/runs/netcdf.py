"""Datasets as netCDF in memory. A file from a stranger is looked at before it is read."""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import xarray as xr

from largeprompt.runs.files import RunError, read_checked

MOST_MEMORY = 2**32  # bytes that a dataset may take
TEXT = 64  # bytes of Python for a character: it keeps a text in some 50 more
LINKS = ("DIMENSION_LIST", "REFERENCE_LIST")  # how netCDF ties variables to their dimensions
_ENCODING = threading.Lock()


def encode(data: xr.Dataset) -> bytes:
    """Return the dataset as netCDF: the same bytes for the same data."""
    plain = data.drop_encoding()
    for variable in plain.variables.values():
        if variable.dtype.kind in "UOT":
            variable.encoding["dtype"] = "S1"  # characters in a row: readers refuse other texts
    with _without_cluster():
        return bytes(plain.to_netcdf(engine="h5netcdf"))


def decode(path: Path, checksum: str) -> xr.Dataset:
    """Read a dataset. The checksum comes first: HDF5 may crash on a damaged file."""
    content = read_checked(path, checksum)
    try:
        return from_bytes(content)
    except Exception as error:  # the reader has many kinds of complaint
        raise RunError(
            f"{path} is not a netCDF file that can be read ({type(error).__name__}: {error})."
        ) from None


def from_bytes(content: bytes) -> xr.Dataset:
    """Return the dataset that :func:`encode` made bytes of; ValueError where it may do harm."""
    with _without_cluster():
        _inspect(content)
        data = xr.load_dataset(io.BytesIO(content), engine="h5netcdf").drop_encoding()
    texts = {name: each for name, each in data.variables.items() if each.dtype.kind == "O"}
    return data.assign({name: each.astype(str) for name, each in texts.items()})


def _inspect(content: bytes) -> None:
    """Refuse a file that leads to other files, or promises more than memory holds."""
    import h5py

    with h5py.File(io.BytesIO(content), "r") as file:
        _inspect_attributes(file)
        needed = 0
        for name in file:
            if not isinstance(file.get(name, getlink=True), h5py.HardLink):
                raise ValueError(f"{name} is a link")
            if file.get(name, getclass=True) is not h5py.Dataset:
                raise ValueError(f"{name} is not a variable")
            found = file[name]
            if found.is_virtual or found.external:
                raise ValueError(f"the numbers of {name} are in another file")
            if found.dtype.kind not in "biufS" or found.dtype.itemsize > 2**16:
                raise ValueError(f"{name} is neither numbers nor characters ({found.dtype})")
            each = found.dtype.itemsize * (TEXT if found.dtype.kind == "S" else 1)
            needed += found.size * each
            _inspect_attributes(found)
        if needed > MOST_MEMORY:
            raise ValueError(f"it may take {needed:,} bytes of memory, more than {MOST_MEMORY:,}")


def _inspect_attributes(found: Any) -> None:
    """Refuse attributes of other types than a run has: their content is read as they are met."""
    import h5py

    for name in found.attrs:
        kept = found.attrs.get_id(name)
        plain = kept.dtype.kind in "biufS" or (
            h5py.check_string_dtype(kept.dtype) is not None and kept.shape in ((), (1,))
        )
        if not plain and name not in LINKS:
            raise ValueError(f"attribute {name} is neither numbers nor a text ({kept.dtype})")
        if kept.get_storage_size() > 2**26:
            raise ValueError(f"attribute {name} is too large")


@contextlib.contextmanager
def _without_cluster() -> Iterator[None]:
    """Use this thread alone: with a Dask client open, xarray takes a lock of the cluster."""
    dask = sys.modules.get("dask")
    with (
        _ENCODING,
        contextlib.nullcontext() if dask is None else dask.config.set(scheduler="synchronous"),
    ):
        yield
