"""Files of a run: read and written whole, as JSON and netCDF, with errors that say what to do."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import xarray as xr

from largeprompt.errors import LargePromptError


class RunError(LargePromptError):
    """A run cannot be read, computed or stored."""


class StorageError(RunError):
    """A folder refuses what is written to it: it is full, read-only, or no folder."""

    @classmethod
    def of(cls, folder: Path, error: OSError) -> StorageError:
        """What went wrong, and what to do about it."""
        reason = error.strerror or str(error) or type(error).__name__
        if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", None)):
            return cls(
                f"no space left for {folder} ({reason}); finished cells are kept. Free some space and give the same command again."
            )
        return cls(f"--out: cannot write to {folder} ({reason}); choose a folder that you may write to.")


@contextlib.contextmanager
def storing(folder: Path) -> Iterator[None]:
    """Turn what the system refuses in the block into StorageError."""
    try:
        yield
    except OSError as error:
        raise StorageError.of(folder, error) from error


def read_plain(path: Path) -> bytes:
    """Content of a file; a link is refused."""
    with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a plain file")
        return file.read()


def digest(*parts: str) -> str:
    """SHA-256 of several texts."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def to_json(value: Any) -> bytes:
    """JSON as it is stored."""
    return json.dumps(value, indent=1, ensure_ascii=False).encode()


def read_json(path: Path, trouble: str = "") -> Any:
    """What a JSON file holds; RunError that begins with ``trouble`` otherwise."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise RunError(f"{trouble or 'cannot read a file of the run'}: {path} ({error.strerror}).") from None
    except ValueError as error:
        raise RunError(f"{trouble or 'cannot read a file of the run'}: {path} is not JSON ({error}).") from None


def encode(data: xr.Dataset) -> bytes:
    """NetCDF4 in memory: the same bytes for the same data, and the disk is only touched by ``write``."""
    return bytes(data.drop_encoding().to_netcdf(engine="h5netcdf"))


def decode(path: Path, checksum: str | None) -> xr.Dataset:
    """Read a dataset. The checksum is compared first, as the HDF5 library may crash on a damaged file."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RunError(f"cannot read {path} ({error.strerror}).") from None
    if checksum is not None and hashlib.sha256(content).hexdigest() != checksum:
        raise RunError(f"{path} is damaged: it is not what was written (checksum).")
    try:
        return xr.load_dataset(io.BytesIO(content), engine="h5netcdf").drop_encoding()
    except Exception as error:  # the reader has many kinds of complaint
        raise RunError(f"{path} is not a netCDF file that can be read ({type(error).__name__}: {error}).") from None
