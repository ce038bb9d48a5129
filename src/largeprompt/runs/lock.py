"""One writer for each run folder: a lock that ends with the process that holds it."""

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

import filelock

from largeprompt.runs.files import RunError, StorageError

NAME = ".lock"
# what file systems say that cannot lock
UNABLE = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
PATIENCE = 10.0  # seconds to wait for others that begin


@contextlib.contextmanager
def locked(folder: Path, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock of a run folder; RunError if another command does, after this patience.

    Where a file system cannot lock, nothing is held.
    """
    lock = filelock.FileLock(folder / NAME, timeout=patience, fallback_to_soft=False)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise RunError(
            f"{folder} is being computed by another command; wait until it ends, or choose another "
            "folder with --out."
        ) from None
    except NotImplementedError:
        pass  # nor here
    except OSError as error:
        if error.errno not in UNABLE:
            raise StorageError.of(folder, error) from error
    try:
        yield
    finally:
        lock.release()
