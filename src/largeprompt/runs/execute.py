"""Cells of runs over any executor: each is stored the moment it is done, and none is lost with another."""

import contextlib
import dataclasses
import functools
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import xarray as xr

from largeprompt.runs.files import RunError, StorageError
from largeprompt.runs.find import find_study
from largeprompt.runs.judging import Verdict
from largeprompt.runs.provenance import provenance
from largeprompt.runs.settings import config_of
from largeprompt.runs.store import Run
from largeprompt.runs.study import Study, quiet

WORKER = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1") | {
    "MALLOC_TRIM_THRESHOLD_": str(2**30),  # glibc keeps what is freed: tensors of some megabytes come and go, and new pages cost
    "MALLOC_MMAP_THRESHOLD_": str(2**25),  # as much as what is done with them
}


@dataclasses.dataclass(frozen=True)
class Job:
    """A run to be computed, and the cells that it lacks."""

    run: Run
    study: Study
    config: Any
    missing: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Ended:
    """A cell that has ended: when it began, its seconds, why it failed ('' if it did not), and how many of its run are open."""

    job: Job
    cell: str
    began: float
    seconds: float
    failure: str
    left: int


@dataclasses.dataclass(frozen=True)
class Finished:
    """A run that has ended, with its verdicts, or with the reason why it has none."""

    job: Job
    verdicts: tuple[Verdict, ...] = ()
    error: RunError | None = None


@dataclasses.dataclass(frozen=True)
class _Outcome:
    """What a worker sends back: text, as not every exception survives the way between processes."""

    began: float
    seconds: float
    failure: str = ""
    trace: str = ""
    storage: bool = False


def _task(job: Job, cell: str) -> Callable[[], xr.Dataset]:
    """What a worker calls. It finds a study again by its source; one without needs functions that can be sent to it."""
    if job.study.source:
        return functools.partial(compute_cell, job.study.source, job.run.config, cell)
    found = job.study.cells(job.config)[cell]
    return functools.partial(found.part.compute, job.config, *found.arguments, quiet)


def compute_cell(source: str, config: dict[str, Any], cell: str) -> xr.Dataset:
    """One cell of the study at a source (see :func:`~largeprompt.runs.find.find_study`), by its name."""
    study = find_study(source)
    settings = config_of(study, config)
    return study.cells(settings)[cell].compute(settings)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Run the block with one thread of PyTorch, so that the numbers do not depend on how many workers there are."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _work(run: Run, task: Callable[[], xr.Dataset], cell: str) -> _Outcome:
    """Compute and store a cell, in the worker."""
    began, start = time.time(), time.perf_counter()
    try:
        with _one_thread():
            data = task()
        seconds = time.perf_counter() - start
        run.write_cell(cell, data, seconds)
    except Exception as error:
        storage = isinstance(error, StorageError)
        failure = str(error) if storage else f"{type(error).__name__}: {error}"
        return _Outcome(began, time.perf_counter() - start, failure, traceback.format_exc(), storage)
    return _Outcome(began, seconds)


def compute(jobs: Sequence[Job], executor: Executor) -> Iterator[Ended]:
    """Compute the missing cells of all jobs and report each as it ends.

    A cell that fails leaves the others running. When a cell cannot be stored, those not begun are cancelled and StorageError is
    raised once the rest has ended. A study without a source needs computations that can be pickled, for an executor of processes.
    """
    left = {job.run.folder: len(job.missing) for job in jobs}
    open_cells: dict[Future[_Outcome], tuple[Job, str]] = {}
    refused = ""
    try:
        with _interrupts_held():  # processes begin here, and do not hear the Ctrl-C that is meant for this one
            for job in jobs:
                for cell in job.missing:
                    open_cells[executor.submit(_work, job.run, _task(job, cell), cell)] = job, cell
        while open_cells:
            done, _ = wait(open_cells, return_when=FIRST_COMPLETED)
            for future in [each for each in open_cells if each in done]:
                job, cell = open_cells.pop(future)
                outcome = _outcome(future)
                left[job.run.folder] -= 1
                _log(job.run, cell, outcome)
                if outcome.storage and not refused:
                    refused = outcome.failure
                    for waiting in [each for each in open_cells if each.cancel()]:
                        del open_cells[waiting]
                yield Ended(job, cell, outcome.began, outcome.seconds, outcome.failure, left[job.run.folder])
    except BrokenExecutor as error:
        raise RunError(f"the worker processes cannot be started ({error}); finished cells are kept.") from error
    finally:
        for future in open_cells:
            future.cancel()
    if refused:
        raise StorageError(refused)


def _outcome(future: Future[_Outcome]) -> _Outcome:
    try:
        return future.result()
    except BrokenExecutor:
        return _Outcome(time.time(), 0.0, "a worker process died, for want of memory perhaps: try fewer --workers")
    except Exception as error:  # the task could not be sent to the worker, say
        return _Outcome(time.time(), 0.0, f"{type(error).__name__}: {error}", traceback.format_exc())


def _log(run: Run, cell: str, outcome: _Outcome) -> None:
    if not outcome.failure:
        run.log(f"cell {cell!r} stored after {outcome.seconds:.3g} s")
        return
    with contextlib.suppress(StorageError):  # what failed is reported anyway
        run.log(f"cell {cell!r} failed: {outcome.failure}\n{outcome.trace}")


def execute_all(
    jobs: Sequence[Job], executor: Executor, *, figures: bool = True, workers: int | None = None
) -> Iterator[Ended | Finished]:
    """Compute what the runs lack and finish each as soon as its cells are there; report every cell and every run.

    A run that fails is reported as such and leaves the others alone; StorageError ends them all, as they share a disk.
    ``figures`` says whether the study's figures are drawn; ``workers`` is for the record.
    """
    began: dict[Path, float] = {}
    failures: dict[Path, list[Ended]] = {job.run.folder: [] for job in jobs}
    for job in jobs:
        if not job.missing:
            yield _finish(job, figures, workers, time.time())
    for ended in compute(jobs, executor):
        yield ended
        folder = ended.job.run.folder
        began[folder] = min(began.get(folder, ended.began), ended.began)
        if ended.failure:
            failures[folder].append(ended)
        if not ended.left:
            if failures[folder]:
                yield Finished(ended.job, error=_failed(ended.job, failures[folder]))
            else:
                yield _finish(ended.job, figures, workers, began[folder])


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
    """Compute what one run lacks over any executor and finish it; RunError names the cell that failed, if one did."""
    verdicts: tuple[Verdict, ...] = ()
    for event in execute_all([Job(run, study, config, run.missing())], executor, figures=figures, workers=workers):
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
        + f". {job.run.finished_cells} of {len(job.run.cells)} cells are stored and kept; with the cause mended, the same command "
        "computes the others. "
        f"Details: {job.run.folder / 'log.txt'}"
    )


def _finish(job: Job, figures: bool, workers: int | None, started: float) -> Finished:
    """Combine the stored cells in the study's order, judge, draw, and last of all write the provenance, which makes it complete."""
    run = job.run
    run.drop_results()
    try:
        checksum = run.write_dataset(job.study.finish(job.config, {cell: run.read_cell(cell) for cell in run.cells}))
        data = run.dataset  # as a reader will see it
        verdicts = job.study.judge(data)
        run.write_verdicts(verdicts)
        if figures:
            from largeprompt.runs.style import rendered  # not above: workers draw nothing

            drawn = job.study.drawable(data)
            files = {each.name: rendered(each.draw(data), each.cards) for each in drawn}
            run.write_figures(files, {each.name: each.caption for each in drawn})
        resumed = len(run.cells) - len(job.missing)
        run.write_provenance(provenance(run, workers=workers, started=started, resumed=resumed, dataset_sha256=checksum))
    except StorageError:
        raise
    except Exception as error:
        run.log(f"not finished: {type(error).__name__}: {error}\n{traceback.format_exc()}")
        trouble = f"{job.study.name}: all cells are stored, but not the result ({type(error).__name__}: {error})."
        return Finished(job, error=RunError(f"{trouble} Details: {run.folder / 'log.txt'}"))
    run.log("complete")
    return Finished(job, tuple(verdicts))


@contextlib.contextmanager
def worker_pool(workers: int) -> Iterator[Executor]:
    """Worker processes of one thread each; left by an exception, Ctrl-C say, they stop at once.

    One worker is a process too, so that the numbers are the same whatever the count.
    """
    context = multiprocessing.get_context("spawn")
    before = {name: os.environ.get(name) for name in WORKER}
    reader, writer = context.Pipe(duplex=False)
    os.environ.update(WORKER)  # read when the libraries load, so it must be there before the process is
    executor = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(reader,))
    try:
        yield executor
    except BaseException:
        writer.close()
        raise
    finally:
        with _interrupts_held():  # a second Ctrl-C waits until the first is done with
            executor.shutdown(wait=True, cancel_futures=True)
            writer.close()
            reader.close()
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _start_worker(reader: Connection) -> None:
    """Leave Ctrl-C to the parent, and end with it however it ends: the pipe closes when it asks for that, or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def leave() -> None:
        with contextlib.suppress(OSError):
            reader.poll(None)
        os._exit(1)

    threading.Thread(target=leave, daemon=True).start()


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold SIGINT back in the block; processes begun in it hold it back for ever."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
