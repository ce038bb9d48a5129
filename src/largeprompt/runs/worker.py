"""What a worker does with a cell: compute it with one thread, within its time, and store it or send
it back.
"""

import contextlib
import ctypes
import dataclasses
import faulthandler
import functools
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import xarray as xr

from largeprompt.runs.files import RunError, StorageError, encode
from largeprompt.runs.find import find_study
from largeprompt.runs.pool import GRACE, LOGGER, TookTooLongError
from largeprompt.runs.settings import config_of
from largeprompt.runs.sources import fingerprint
from largeprompt.runs.store import Run

_THREADS = threading.Lock()
_before: list[int] = []  # threads that PyTorch had before each cell that runs in this process


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a worker sends back: text, as not every exception survives the way between processes.

    ``content`` is the cell itself where the worker does not see the folder of the run.
    """

    began: float
    seconds: float
    failure: str = ""
    trace: str = ""
    storage: bool = False
    content: bytes = b""


def prepared(source: str, config: dict[str, Any], cell: str, code: str) -> Callable[[], xr.Dataset]:
    """What computes one cell, by its name, of the study at a source (see
    :func:`~largeprompt.runs.find.find_study`).

    ``code`` is the fingerprint that the run was begun with, as a worker with other sources must not
    add to it.
    """
    study = find_study(source)
    if code != _code(source):
        trouble = f"the worker's code of {study.name} is not that of the run"
        raise RunError(
            f"{trouble}: install the same version there, or leave the sources alone while it "
            "computes."
        )
    settings = config_of(study, config)
    return functools.partial(study.cells(settings)[cell].compute, settings, LOGGER.info)


@functools.cache
def _code(source: str) -> str:
    return fingerprint(find_study(source).computing)


def work(
    run: Run,
    prepare: Callable[[], Callable[[], xr.Dataset]],
    cell: str,
    mark: str,
    limit: float | None,
) -> Outcome:
    """Compute a cell, and store it if the folder of the run, known by the file ``mark`` in it, is
    seen from here.

    ``prepare`` returns what computes it, after the imports that this needs: they do not count for
    the limit.
    """
    began, start = time.time(), time.perf_counter()
    LOGGER.setLevel(logging.INFO)  # progress, for who listens here or elsewhere
    try:
        with one_thread():
            compute = prepare()
            start = time.perf_counter()
            with limited(limit), ended_with_process(limit):
                data = compute()
        seconds = time.perf_counter() - start
        content = encode(data)
        if not (run.folder / mark).is_file():
            return Outcome(began, seconds, content=content)
        run.write_cell(cell, content, seconds)
    except Exception as error:
        storage = isinstance(error, StorageError)
        failure = (
            str(error)
            if isinstance(error, RunError | TookTooLongError) and str(error)
            else f"{type(error).__name__}: {error}"
        )
        return Outcome(began, time.perf_counter() - start, failure, traceback.format_exc(), storage)
    return Outcome(began, seconds)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Run the block with one thread of PyTorch, so that the numbers do not depend on how many
    workers there are.
    """
    import torch

    with _THREADS:  # cells may run side by side in threads of one process
        _before.append(torch.get_num_threads())
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _THREADS:
            first = _before[0]
            _before.pop()
            if not _before:
                torch.set_num_threads(first)


@contextlib.contextmanager
def ended_with_process(seconds: float | None) -> Iterator[None]:
    """End the process of a block that takes longer and does not end itself, inside a call of a
    library too.

    Only in a worker of Dask that a nanny replaces; :class:`~largeprompt.runs.pool.Pool` ends its
    processes itself.
    """
    distributed = sys.modules.get("distributed")
    try:
        nanny = distributed and distributed.get_worker().nanny
    except (ValueError, AttributeError):  # no worker here
        nanny = None
    if seconds is None or not nanny:
        yield
        return
    with Path(os.devnull).open("w") as nowhere:
        # a thread that needs no Python to run
        faulthandler.dump_traceback_later(seconds + GRACE, exit=True, file=nowhere)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()


@contextlib.contextmanager
def limited(seconds: float | None) -> Iterator[None]:
    """Raise TookTooLongError in the block when it takes longer: between two steps of Python, not
    inside a call of a library.
    """
    if seconds is None:
        yield
        return
    thread, raised_in = (
        ctypes.c_ulong(threading.get_ident()),
        ctypes.pythonapi.PyThreadState_SetAsyncExc,
    )
    timer = threading.Timer(seconds, raised_in, (thread, ctypes.py_object(TookTooLongError)))
    timer.daemon = True
    timer.start()
    try:
        yield
    except TookTooLongError:
        raise TookTooLongError(
            f"ended after {seconds:g} s, the time that a cell may take (--cell-limit)"
        ) from None
    finally:
        timer.cancel()
        timer.join()
        raised_in(thread, None)  # one that came too late to be raised
