"""One writer for each run folder: a lock that ends with the process that holds it."""

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

import filelock

from largeprompt.runs.files import RunError, StorageError

WHOLE = ".lock"  # held by who computes a run; by a shard only while it begins
# what file systems say that cannot lock
UNABLE = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
PATIENCE = 10.0  # seconds to wait for others that begin


@contextlib.contextmanager
def locked(
    folder: Path, shard: tuple[int, int] | None = None, patience: float = 0.0
) -> Iterator[None]:
    """Hold the lock of a run folder; RunError if another command does, and still does after some
    seconds of ``patience``.

    A shard locks its own name only, so that all shards of a run may compute at once, but not one of
    them twice, and none beside a command that computes the whole. Where a file system cannot lock,
    nothing is held.
    """
    with contextlib.ExitStack() as stack:
        whole = stack.enter_context(_held(folder / WHOLE, folder, PATIENCE if shard else patience))
        if shard is None:
            for other in sorted(folder.glob(f"{WHOLE}-*")):
                with _held(other, folder, 0.0):
                    pass  # free
        else:
            stack.enter_context(_held(folder / f"{WHOLE}-{shard[0]}-of-{shard[1]}", folder, 0.0))
            whole.release()
        yield


@contextlib.contextmanager
def _held(path: Path, folder: Path, patience: float) -> Iterator[filelock.BaseFileLock]:
    lock = filelock.FileLock(path, timeout=patience, fallback_to_soft=False)
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
        yield lock
    finally:
        lock.release()
