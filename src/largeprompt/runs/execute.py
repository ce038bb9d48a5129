"""Cells of runs over any executor: each is stored when it is done, whatever becomes of others."""

import contextlib
import dataclasses
import functools
import math
import pickle
import secrets
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    wait,
)
from pathlib import Path
from typing import Any

import xarray as xr

from largeprompt.runs.files import RunError, StorageError
from largeprompt.runs.finish import Finished, Job, finish
from largeprompt.runs.judging import Verdict
from largeprompt.runs.lock import locked
from largeprompt.runs.store import Run
from largeprompt.runs.study import Study, quiet
from largeprompt.runs.worker import Outcome, computed, work


@dataclasses.dataclass(frozen=True)
class Ended:
    """A cell that has ended, and how many of its run are open."""

    job: Job
    cell: str
    outcome: Outcome
    left: int


def _tasks(job: Job) -> Iterator[tuple[str, Callable[[], xr.Dataset]]]:
    """The missing cells and what computes them.

    A worker finds a study by its source; one without needs functions that can be sent to it.
    """
    run, study, cells = job.run, job.study, job.study.cells(job.config)
    settings = pickle.dumps(job.config) if study.source else b""
    for cell in job.missing:
        found = cells[cell]
        yield (
            cell,
            functools.partial(computed, study.source, run.code, settings, cell)
            if study.source
            else functools.partial(found.part.compute, job.config, *found.arguments, quiet),
        )


def compute(jobs: Sequence[Job], executor: Executor, limit: float | None = None) -> Iterator[Ended]:
    """Compute the missing cells of all jobs and report each as it ends.

    A cell that fails leaves the others running. When a cell cannot be stored, those not begun are
    cancelled and StorageError is raised once the rest has ended.
    """
    left = {job.run.folder: len(job.missing) for job in jobs}
    open_cells: dict[Future[Outcome], tuple[Job, str]] = {}
    # a worker that sees this file stores its cells itself
    refused, mark = "", f".seen-{secrets.token_hex(8)}.part"
    try:
        for job in jobs:
            job.run.write(mark, b"")
            # a worker may stand elsewhere
            run = dataclasses.replace(job.run, folder=job.run.folder.resolve())
            for cell, task in _tasks(job):
                open_cells[executor.submit(work, run, task, cell, mark, limit)] = (job, cell)
        while open_cells:
            done, _ = wait(open_cells, return_when=FIRST_COMPLETED)
            for future in [each for each in open_cells if each in done]:
                job, cell = open_cells.pop(future)
                outcome = _outcome(future, job.run, cell, limit)
                left[job.run.folder] -= 1
                _log(job.run, cell, outcome)
                if outcome.storage and not refused:
                    refused = outcome.failure
                    for waiting in [each for each in open_cells if each.cancel()]:
                        del open_cells[waiting]
                yield Ended(job, cell, outcome, left[job.run.folder])
    except BrokenExecutor as error:
        raise RunError(
            f"the worker processes cannot be started ({error}); finished cells are kept."
        ) from error
    finally:
        for future in open_cells:
            future.cancel()
        for job in jobs:
            with contextlib.suppress(OSError):
                (job.run.folder / mark).unlink(missing_ok=True)
    if refused:
        raise StorageError(refused)


def _outcome(future: Future[Outcome], run: Run, cell: str, limit: float | None) -> Outcome:
    """What became of a cell. Store a returned cell; a worker may have stored it already."""
    try:
        outcome = future.result()
        if outcome.content:
            run.write_cell(cell, outcome.content, outcome.seconds)
        return outcome
    except StorageError as error:
        return Outcome(time.time(), 0.0, str(error), storage=True)
    except CancelledError:
        return Outcome(time.time(), 0.0, "its executor gave it up; has the scheduler ended?")
    except Exception as error:  # its worker died, or the task could not be sent to it
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        if limit is not None and type(error).__name__ == "KilledWorker":
            reason += f" A worker is ended when its cell takes more than {limit:g} s."
        return Outcome(time.time(), 0.0, reason, "".join(traceback.format_exception(error)))


def _log(run: Run, cell: str, outcome: Outcome) -> None:
    if not outcome.failure:
        run.log(f"cell {cell!r} stored after {outcome.seconds:.3g} s")
        return
    with contextlib.suppress(StorageError):  # what failed is reported anyway
        run.log(f"cell {cell!r} failed: {outcome.failure}\n{outcome.trace}")


def execute_all(
    jobs: Sequence[Job],
    executor: Executor,
    *,
    workers: int | None = None,
    limit: float | None = None,
) -> Iterator[Ended | Finished]:
    """Compute what the runs lack and finish each when its cells are there; report both.

    A run that fails leaves the others alone; StorageError ends them all, as they share a disk.

    Parameters
    ----------
    jobs
        Runs and the cells that they lack; their folders are locked until the end.
    executor
        Any that keeps the contract of :mod:`concurrent.futures`.
    workers
        How many there are, for the record.
    limit
        Seconds after which a worker of Dask ends a cell; a pool of ours knows its own.
    """
    began: dict[Path, float] = {}
    failures: dict[Path, list[Ended]] = {job.run.folder: [] for job in jobs}
    with contextlib.ExitStack() as locks:
        for job in jobs:
            locks.enter_context(locked(job.run.folder))
            if Run.open(job.run.folder) != job.run:
                raise RunError(
                    f"{job.run.folder} was taken by another command, with other settings; choose "
                    "another --out."
                )
            job.run.drop_drafts()
        for job in jobs:
            if not job.missing:
                yield finish(job, workers=workers, started=time.time())
        for ended in compute(jobs, executor, limit):
            yield ended
            job, folder = ended.job, ended.job.run.folder
            began[folder] = min(began.get(folder, math.inf), ended.outcome.began)
            if ended.outcome.failure:
                failures[folder].append(ended)
            if not ended.left and failures[folder]:
                yield Finished(job, error=_failed(job, failures[folder]))
            elif not ended.left:
                yield finish(job, workers=workers, started=began[folder])


def execute(
    run: Run,
    study: Study,
    config: Any,
    executor: Executor,
    progress: Callable[[Ended], None] = lambda ended: None,
    *,
    workers: int | None = None,
) -> tuple[Verdict, ...]:
    """Compute what one run lacks and finish it; RunError names a cell that failed."""
    verdicts: tuple[Verdict, ...] = ()
    job = Job(run, study, config, run.missing())
    for event in execute_all([job], executor, workers=workers):
        if isinstance(event, Finished):
            if event.error:
                raise event.error
            verdicts = event.verdicts
        else:
            progress(event)
    return verdicts


def _failed(job: Job, failures: Sequence[Ended]) -> RunError:
    """What the user reads about cells that failed."""
    first, more = failures[0], len(failures) - 1
    return RunError(
        f"{job.study.name}: cell {first.cell!r} failed ({first.outcome.failure})"
        + (f", and {more} more" if more else "")
        + f". {job.run.finished_cells} of {len(job.run.cells)} cells are stored and kept. Fix the "
        f"cause and rerun the same command. Details: {job.run.folder / 'log.txt'}"
    )
