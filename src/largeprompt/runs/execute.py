"""Cells of runs over any executor: each is stored the moment it is done, and none is lost with
another.
"""

import contextlib
import dataclasses
import functools
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
from largeprompt.runs.worker import Outcome, prepared, work

SILENCE = 30.0  # seconds after which it is looked for what was stored without a word


@dataclasses.dataclass(frozen=True)
class Ended:
    """A cell that has ended: when it began, its seconds, why it failed ('' if it did not), and how
    many of its run are open.
    """

    job: Job
    cell: str
    began: float
    seconds: float
    failure: str
    left: int


def _task(job: Job, cell: str) -> Callable[[], Callable[[], xr.Dataset]]:
    """What a worker calls first. It finds a study again by its source; one without needs functions
    that can be sent to it.
    """
    if job.study.source:
        return functools.partial(
            prepared, job.study.source, job.run.config, cell, job.run.cell_code
        )
    found = job.study.cells(job.config)[cell]
    return functools.partial(
        functools.partial, found.part.compute, job.config, *found.arguments, quiet
    )


def compute(jobs: Sequence[Job], executor: Executor, limit: float | None = None) -> Iterator[Ended]:
    """Compute the missing cells of all jobs and report each as it ends.

    A cell that fails, or takes more than ``limit`` seconds, leaves the others running. When a cell
    cannot be stored, those not begun are cancelled and StorageError is raised once the rest has
    ended. A study without a source needs computations that can be pickled, for an executor of
    processes.
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
            for cell in job.missing:
                open_cells[executor.submit(work, run, _task(job, cell), cell, mark, limit)] = (
                    job,
                    cell,
                )
        while open_cells:
            done, _ = wait(open_cells, SILENCE, FIRST_COMPLETED)
            if not done:  # a worker that stores a cell may not live to say so
                done = {
                    future for future, (job, cell) in open_cells.items() if job.run.is_stored(cell)
                }
            for future in [each for each in open_cells if each in done]:
                job, cell = open_cells.pop(future)
                outcome = _outcome(future, job.run, cell, limit)
                left[job.run.folder] -= 1
                _log(job.run, cell, outcome)
                if outcome.storage and not refused:
                    refused = outcome.failure
                    for waiting in [each for each in open_cells if each.cancel()]:
                        del open_cells[waiting]
                yield Ended(
                    job, cell, outcome.began, outcome.seconds, outcome.failure, left[job.run.folder]
                )
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
    """What became of a cell; one that was sent back is stored here, one that is stored needs no
    word.
    """
    try:
        if not future.done():
            future.cancel()
            return Outcome(time.time(), 0.0)
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
            reason += (
                " It may hang: the worker of a cell that does not end itself after "
                f"{limit:g} s (--cell-limit) is ended."
            )
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
    figures: bool = True,
    workers: int | None = None,
    limit: float | None = None,
    shard: tuple[int, int] | None = None,
) -> Iterator[Ended | Finished]:
    """Compute what the runs lack and finish each as soon as its cells are there; report every cell
    and every run.

    A run that fails is reported as such and leaves the others alone; StorageError ends them all, as
    they share a disk.

    Parameters
    ----------
    jobs
        Runs and the cells that they lack; their folders are locked until the end.
    executor
        Any that keeps the contract of :mod:`concurrent.futures`.
    figures
        Whether the study's figures are drawn.
    workers
        How many there are, for the record.
    limit
        Seconds that a cell may take.
    shard
        ``(i, n)`` to compute the i-th of n parts of the cells (see :func:`sharded`), and finish no
        run.
    """
    with contextlib.ExitStack() as locks:
        for job in jobs:
            locks.enter_context(locked(job.run.folder, shard))
            if Run.open(job.run.folder) != job.run:
                raise RunError(
                    f"{job.run.folder} was taken by another command, with other settings; choose "
                    "another --out."
                )
            if shard is None:
                job.run.drop_drafts()
        if shard is None:
            yield from _execute_all(jobs, executor, figures, workers, limit)
            for job in jobs:  # of workers that died while they wrote
                job.run.drop_drafts()
        else:
            yield from compute(sharded(jobs, shard), executor, limit)


def sharded(jobs: Sequence[Job], shard: tuple[int, int]) -> list[Job]:
    """The jobs with every n-th cell, from the i-th on, of all runs in a row; those already stored
    are counted too.
    """
    number, count = shard
    every = [(job, cell) for job in jobs for cell in job.run.cells]
    mine = {(job.run.folder, cell) for job, cell in every[number - 1 :: count]}
    return [
        dataclasses.replace(
            job, missing=tuple(each for each in job.missing if (job.run.folder, each) in mine)
        )
        for job in jobs
    ]


def _execute_all(
    jobs: Sequence[Job], executor: Executor, figures: bool, workers: int | None, limit: float | None
) -> Iterator[Ended | Finished]:
    began: dict[Path, float] = {}
    failures: dict[Path, list[Ended]] = {job.run.folder: [] for job in jobs}
    for job in jobs:
        if not job.missing:
            yield finish(job, figures=figures, workers=workers, started=time.time())
    for ended in compute(jobs, executor, limit):
        yield ended
        folder = ended.job.run.folder
        began[folder] = min(began.get(folder, ended.began), ended.began)
        if ended.failure:
            failures[folder].append(ended)
        if not ended.left:
            if failures[folder]:
                yield Finished(ended.job, error=_failed(ended.job, failures[folder]))
            else:
                yield finish(ended.job, figures=figures, workers=workers, started=began[folder])


def execute(
    run: Run,
    study: Study,
    config: Any,
    executor: Executor,
    progress: Callable[[Ended], None] | None = None,
    *,
    figures: bool = True,
    workers: int | None = None,
) -> tuple[Verdict, ...]:
    """Compute what one run lacks over any executor and finish it; RunError names the cell that
    failed, if one did.
    """
    verdicts: tuple[Verdict, ...] = ()
    for event in execute_all(
        [Job(run, study, config, run.missing())], executor, figures=figures, workers=workers
    ):
        if isinstance(event, Finished):
            if event.error:
                raise event.error
            verdicts = event.verdicts
        elif progress is not None:
            progress(event)
    return verdicts


def _failed(job: Job, failures: Sequence[Ended]) -> RunError:
    """What the user reads about cells that failed."""
    first, more = failures[0], len(failures) - 1
    return RunError(
        f"{job.study.name}: cell {first.cell!r} failed ({first.failure})"
        + (f", and {more} more" if more else "")
        + f". {job.run.finished_cells} of {len(job.run.cells)} cells are stored and kept; with the "
        "cause mended, the same command computes the others. Details: "
        f"{job.run.folder / 'log.txt'}"
    )
