"""Files of a run: plain ones of bounded size, with checksums, and errors that say what to do."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pydantic

from largeprompt.errors import LargePromptError

LARGEST = {".json": 2**26, ".nc": 2**32}  # bytes that a file of this kind may have
LARGEST_OTHER = 2**28
SEAL = "sha256"  # the field of a sealed file that holds the checksum of all others


class RunError(LargePromptError):
    """A run cannot be read, computed or stored."""


class StorageError(RunError):
    """A folder refuses what is written to it: it is full, read-only, or no folder."""

    @classmethod
    def of(cls, folder: Path, error: OSError) -> StorageError:
        """Return what went wrong, and what to do about it."""
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
    """Content of a file; links, pipes, devices and files too large for their kind are refused."""
    largest = largest or LARGEST.get(path.suffix, LARGEST_OTHER)
    # a pipe without a writer would block
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with os.fdopen(os.open(path, flags), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a plain file")
        if found.st_size > largest:
            raise OSError(errno.EFBIG, f"{found.st_size:,} bytes, more than {largest:,}")
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
    """The fields of a sealed file; RunError unless it is byte for byte what was written."""
    try:
        content = read_plain(path)
        found = from_json(content)
        sealed_here = isinstance(found, dict) and bool(found.pop(SEAL, None))
        whole = sealed_here and sealed(found) == content
    except OSError as error:
        raise RunError(f"{trouble}: {path} ({error.strerror}).") from None
    except (ValueError, RecursionError) as error:
        raise RunError(f"{trouble}: {path} is not JSON ({error}).") from None
    if not sealed_here:
        raise RunError(
            f"{trouble}: {path} has no checksum; it is something else, or of an older version. "
            "Compute it again."
        )
    if not whole:
        raise RunError(f"{trouble}: {path} is damaged, it is not what was written (checksum).")
    fields: dict[str, Any] = found
    return fields


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
