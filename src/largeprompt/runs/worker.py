"""What a worker does with a cell: compute it with one thread, and store it or send it back."""

import contextlib
import dataclasses
import faulthandler
import functools
import logging
import os
import pickle
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from largeprompt.runs.files import RunError, StorageError
from largeprompt.runs.find import find_study
from largeprompt.runs.netcdf import encode
from largeprompt.runs.pool import LOGGER
from largeprompt.runs.sources import fingerprint
from largeprompt.runs.store import Run
from largeprompt.runs.study import Cell

_THREADS = threading.Lock()
_before: list[int] = []  # threads that PyTorch had before each cell that runs in this process


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a worker sends back: texts, and the cell itself where it does not see the folder."""

    began: float
    seconds: float
    failure: str = ""
    trace: str = ""
    storage: bool = False
    content: bytes = b""


def computed(source: str, code: str, settings: bytes, cell: str) -> xr.Dataset:
    """Compute one cell, by its name, of the study at a source (see :func:`find_study`)."""
    config, cells = _cells(source, code, settings)
    return cells[cell].compute(config, LOGGER.info)


@functools.lru_cache(maxsize=64)  # runs whose cells a worker computes in turn
def _cells(source: str, code: str, settings: bytes) -> tuple[Any, Mapping[str, Cell]]:
    """Settings and cells of a run, from its command; refuse where the code here is another."""
    study = find_study(source)
    if code != fingerprint(study.computing):
        raise RunError(
            f"the worker's code of {study.name} is not that of the run: install the same version "
            "there, or leave the sources alone while it computes."
        )
    config = pickle.loads(settings)
    return config, study.cells(config)


def work(
    run: Run, compute: Callable[[], xr.Dataset], cell: str, mark: str, limit: float | None
) -> Outcome:
    """Compute a cell. Store it if the folder of the run, known by the file ``mark``, is seen."""
    began, start = time.time(), time.perf_counter()
    LOGGER.setLevel(logging.INFO)  # progress, for who listens here or elsewhere
    try:
        with one_thread(), ended_with_process(limit):
            data = compute()
        seconds = time.perf_counter() - start
        content = encode(data)
        if not (run.folder / mark).is_file():
            return Outcome(began, seconds, content=content)
        run.write_cell(cell, content, seconds)
    except Exception as error:
        plain = isinstance(error, RunError) and str(error)
        failure = str(error) if plain else f"{type(error).__name__}: {error}"
        seconds, trace = time.perf_counter() - start, traceback.format_exc()
        return Outcome(began, seconds, failure, trace, isinstance(error, StorageError))
    return Outcome(began, seconds)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Run the block with one thread of PyTorch: numbers do not depend on the number of workers."""
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
    """End the process of a block that takes longer, in a worker of Dask that a nanny replaces."""
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
        faulthandler.dump_traceback_later(seconds, exit=True, file=nowhere)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
