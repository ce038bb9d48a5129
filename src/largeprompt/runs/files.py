"""Files of a run: plain ones of bounded size, read and written whole, as JSON and netCDF, with
errors that say what to do.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import io
import json
import os
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pydantic
import xarray as xr

from largeprompt.errors import LargePromptError

# bytes that a file of this kind may have, and a dataset in memory
LARGEST = {".json": 2**26, ".nc": 2**32}
LARGEST_OTHER = 2**28
SEAL = "sha256"  # the field of a sealed file that holds the checksum of all others
_ENCODING = threading.Lock()


class RunError(LargePromptError):
    """A run cannot be read, computed or stored."""


class StorageError(RunError):
    """A folder refuses what is written to it: it is full, read-only, or no folder."""

    @classmethod
    def of(cls, folder: Path, error: OSError) -> StorageError:
        """What went wrong, and what to do about it."""
        reason = error.strerror or str(error) or type(error).__name__
        if error.errno in (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", None)):
            return cls(
                f"no space left for {folder} ({reason}); finished cells are kept. Free some space "
                "and give the same command again."
            )
        return cls(
            f"--out: cannot write to {folder} ({reason}); choose a folder that you may write to."
        )


@contextlib.contextmanager
def storing(folder: Path) -> Iterator[None]:
    """Turn what the system refuses in the block into StorageError."""
    try:
        yield
    except OSError as error:
        raise StorageError.of(folder, error) from error


def read_plain(path: Path, largest: int | None = None) -> bytes:
    """Content of a file. Links, pipes, devices and files too large (for their kind) are refused,
    before a byte is read.
    """
    largest = largest or LARGEST.get(path.suffix, LARGEST_OTHER)
    # a pipe without a writer would block
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with os.fdopen(os.open(path, flags), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a plain file")
        if found.st_size > largest:
            raise OSError(
                errno.EFBIG,
                f"{found.st_size:,} bytes, more than the {largest:,} that such a file may have",
            )
        return file.read(largest)


def read_checked(path: Path, checksum: str) -> bytes:
    """Content of a file; RunError if it cannot be read, or is not what was written."""
    try:
        content = read_plain(path)
    except OSError as error:
        raise RunError(f"cannot read {path} ({error.strerror}).") from None
    if sha256(content) != checksum:
        raise RunError(f"{path} is damaged: it is not what was written (checksum).")
    return content


def sha256(content: bytes) -> str:
    """SHA-256 of a file's content."""
    return hashlib.sha256(content).hexdigest()


def digest(*parts: str) -> str:
    """SHA-256 of several texts."""
    return sha256(json.dumps(parts).encode())


def to_json(value: Any) -> bytes:
    """JSON as it is stored."""
    return json.dumps(value, indent=1, ensure_ascii=False).encode()


def from_json(content: bytes) -> Any:
    """What JSON holds; ValueError where it is none, or too deep."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is too deep") from None


def sealed(fields: dict[str, Any]) -> bytes:
    """JSON of some fields, and one more that holds their checksum: see :func:`read_sealed`."""
    return to_json(fields | {SEAL: sha256(to_json(fields))})


def read_sealed(path: Path, trouble: str = "cannot read a file of the run") -> dict[str, Any]:
    """The fields of a sealed file; RunError that begins with ``trouble`` unless it is byte for byte
    what was written.
    """
    try:
        content = read_plain(path)
        found = from_json(content)
        if not isinstance(found, dict) or SEAL not in found:
            raise RunError(
                f"{trouble}: {path} has no checksum; it is something else, or of an older version. "
                "Compute it again."
            )
        del found[SEAL]
        whole = sealed(found) == content
    except OSError as error:
        raise RunError(f"{trouble}: {path} ({error.strerror}).") from None
    except RunError:
        raise
    except (ValueError, RecursionError) as error:
        raise RunError(f"{trouble}: {path} is not JSON ({error}).") from None
    if not whole:
        raise RunError(f"{trouble}: {path} is damaged, it is not what was written (checksum).")
    return found


def validated(kind: Any, content: bytes, trouble: str) -> Any:
    """A value of this type from JSON; RunError that begins with ``trouble`` otherwise."""
    try:
        return _adapter(kind).validate_json(content, strict=True)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise RunError(f"{trouble} ({place + ': ' if place else ''}{first['msg']}).") from None


@functools.cache
def _adapter(kind: Any) -> pydantic.TypeAdapter[Any]:
    return pydantic.TypeAdapter(kind)


def encode(data: xr.Dataset) -> bytes:
    """NetCDF4 in memory: the same bytes for the same data, and the disk is only touched by
    ``write``.
    """
    with _without_cluster():
        return bytes(data.drop_encoding().to_netcdf(engine="h5netcdf"))


def decode(path: Path, checksum: str) -> xr.Dataset:
    """Read a dataset. The checksum is compared first, as the HDF5 library may crash on a damaged
    file.
    """
    content = read_checked(path, checksum)
    try:
        return from_bytes(content)
    except Exception as error:  # the reader has many kinds of complaint
        raise RunError(
            f"{path} is not a netCDF file that can be read ({type(error).__name__}: {error})."
        ) from None


def from_bytes(content: bytes) -> xr.Dataset:
    """The dataset that :func:`encode` made bytes of, in memory; ValueError if that would take too
    much of it.
    """
    with _without_cluster():
        # a small file can promise any size, and an index is read as soon as it is made
        with xr.open_dataset(
            io.BytesIO(content), engine="h5netcdf", create_default_indexes=False
        ) as data:
            if data.nbytes > LARGEST[".nc"]:
                raise ValueError(
                    f"it would take {data.nbytes:,} bytes of memory, more than {LARGEST['.nc']:,}"
                )
        return xr.load_dataset(io.BytesIO(content), engine="h5netcdf").drop_encoding()


@contextlib.contextmanager
def _without_cluster() -> Iterator[None]:
    """Read or write in this thread alone: where a Dask client is open, xarray takes a lock of the
    cluster that nobody finds.
    """
    dask = sys.modules.get("dask")
    with (
        _ENCODING,
        contextlib.nullcontext() if dask is None else dask.config.set(scheduler="synchronous"),
    ):
        yield
