"""Worker processes on this machine: one that dies is replaced and its task tried again, one that
hangs is ended.
"""

from __future__ import annotations

import contextlib
import logging.handlers
import multiprocessing
import os
import pickle
import queue
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

T = TypeVar("T")

GRACE = 30.0  # seconds between asking a cell to end and ending its process
ATTEMPTS = 3  # of a task whose worker dies
WORKER = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1") | {
    # glibc keeps what is freed: tensors of some megabytes come and go, and new pages cost
    "MALLOC_TRIM_THRESHOLD_": str(2**30),
    "MALLOC_MMAP_THRESHOLD_": str(2**25),  # as much as what is done with them
}
LOGGER = logging.getLogger("largeprompt")
_CONTEXT = multiprocessing.get_context("spawn")
_STARTING = threading.Lock()


class WorkerDiedError(RuntimeError):
    """A task's worker process died each time that it was tried."""


class TookTooLongError(RuntimeError):
    """A task was ended after the time that it may take."""


class Pool(Executor):
    """Processes of one thread each (see :data:`WORKER`), which take tasks in the order in which
    they come.

    Parameters
    ----------
    workers
        How many processes; one is a process too, so that numbers are the same whatever the count.
    limit
        Seconds that a task may take; the process of one that takes longer is ended. None: as long
        as it likes.
    """

    def __init__(self, workers: int, limit: float | None = None) -> None:
        self._tasks: queue.SimpleQueue[tuple[Future[Any], tuple[Any, ...]] | None] = (
            queue.SimpleQueue()
        )
        self._limit = limit
        self._stopped = threading.Event()
        self._processes: dict[int, _Process] = {}
        if hasattr(signal, "pthread_sigmask"):  # not Windows
            # which would let Ctrl-C through again in the thread that begins it
            resource_tracker.ensure_running()
        self._threads = [
            threading.Thread(target=self._serve, args=(number,), daemon=True)
            for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        if self._stopped.is_set():
            raise RuntimeError("the pool is shut down")
        future: Future[T] = Future()
        self._tasks.put((future, (fn, args, kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the pool: at once if tasks are cancelled, whatever the processes are at; otherwise
        when they are done.
        """
        if cancel_futures:
            self._stopped.set()
            for process in list(self._processes.values()):
                with contextlib.suppress(ValueError):  # it has just ended
                    process.kill()
        for _ in self._threads:
            self._tasks.put(None)
        if wait:
            for thread in self._threads:
                thread.join()
        self._stopped.set()

    def _serve(self, number: int) -> None:
        """Hand tasks to one process, in a thread of its own."""
        # processes begun here do not hear a Ctrl-C meant for this one
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        while (item := self._tasks.get()) is not None:
            future, task = item
            if self._stopped.is_set():
                future.cancel()
            elif future.set_running_or_notify_cancel():
                try:
                    future.set_result(self._perform(number, task))
                except BaseException as error:
                    future.set_exception(error)
        if number in self._processes:
            self._processes.pop(number).end()

    def _perform(self, number: int, task: tuple[Any, ...]) -> Any:
        died = ""
        for attempt in range(1, ATTEMPTS + 1):
            process = self._processes.get(number) or self._processes.setdefault(number, _Process())
            if self._stopped.is_set():
                process.kill()
            try:
                failed, found = process.perform(task, self._limit)
            except (EOFError, OSError):  # the other end of the pipe is gone
                died = self._processes.pop(number).end()
                if self._stopped.is_set():
                    break
                LOGGER.warning(
                    "a worker process died (%s) in attempt %d of %d", died, attempt, ATTEMPTS
                )
                continue
            except BaseException:
                # its answer may still come, and must not be taken for that to the next task
                if process.waited_for:
                    self._processes.pop(number).end()
                raise
            if failed:
                raise found
            return found
        raise WorkerDiedError(
            f"its worker process died {attempt} times ({died}), for want of memory perhaps: try "
            "fewer --workers"
        )


class _Process:
    """A worker process and this end of its pipe."""

    def __init__(self) -> None:
        self._pipe, theirs = _CONTEXT.Pipe()
        self.waited_for = False
        with _STARTING:
            before = {name: os.environ.get(name) for name in WORKER}
            # read when the libraries load, so it must be there before the process is
            os.environ.update(WORKER)
            try:
                self._process = _CONTEXT.Process(target=_work, args=(theirs,), daemon=True)
                self._process.start()
            finally:
                for name, value in before.items():
                    if value is None:
                        del os.environ[name]
                    else:
                        os.environ[name] = value
                theirs.close()

    def perform(self, task: tuple[Any, ...], limit: float | None) -> tuple[bool, Any]:
        """Send a task and wait for what becomes of it: whether it failed, and its result or
        exception.

        What the worker logs on the way is logged here. The limit counts from when the worker has
        begun.
        """
        self._pipe.send(task)
        self.waited_for, deadline = True, None
        while True:
            if not self._pipe.poll(
                None if deadline is None else max(0.0, deadline - time.monotonic())
            ):
                raise TookTooLongError(
                    f"its process was ended after {limit:g} s, as it did not end itself"
                )
            kind, found = self._pipe.recv()
            if kind == "begun" and limit is not None:
                deadline = time.monotonic() + limit
            elif kind == "log":
                # a display that fails is not the worker's fault
                with contextlib.suppress(Exception):
                    LOGGER.handle(found)
            elif kind in ("result", "error"):
                self.waited_for = False
                return kind == "error", found

    def kill(self) -> None:
        """End the process, whatever it is at; who waits for it sees the pipe end."""
        self._process.kill()

    def end(self) -> str:
        """Be done with the process, and say how it ended."""
        self._pipe.close()
        # an idle one leaves when the pipe ends, and one that has died is not killed
        self._process.join(0.5)
        self._process.kill()
        self._process.join()
        code = self._process.exitcode or 0
        self._process.close()
        return f"signal {-code}" if code < 0 else f"exit code {code}"


class _Sender(logging.handlers.QueueHandler):
    """Sends what is logged in a worker to its parent."""

    def __init__(self, pipe: Connection) -> None:
        super().__init__(queue.SimpleQueue())  # never used
        self._pipe = pipe

    def enqueue(self, record: logging.LogRecord) -> None:
        self._pipe.send(("log", record))

    def handleError(self, record: logging.LogRecord) -> None:
        """Nobody listens any more."""


def _work(pipe: Connection) -> None:
    """Perform tasks until the pipe ends; leave Ctrl-C to the parent, and end with it however it
    ends.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    logging.captureWarnings(True)
    sender = _Sender(pipe)
    for logger in (LOGGER, logging.getLogger("py.warnings")):
        logger.addHandler(sender)
        logger.propagate = False
    LOGGER.setLevel(logging.INFO)
    with contextlib.suppress(EOFError, OSError):
        while True:
            answer = _answered(pipe)
            try:
                pipe.send(answer)
            except (TypeError, AttributeError, pickle.PicklingError) as error:
                pipe.send(("error", RuntimeError(f"the result cannot be sent back ({error})")))


def _answered(pipe: Connection) -> tuple[str, Any]:
    """The next task, performed: what it needs is imported as it is unpickled, which a limit does
    not count.
    """
    content = pipe.recv_bytes()
    try:
        fn, args, kwargs = pickle.loads(content)  # from the parent process
    except Exception as error:
        return "error", error
    pipe.send(("begun", None))
    try:
        return "result", fn(*args, **kwargs)
    except Exception as error:
        return "error", error


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
