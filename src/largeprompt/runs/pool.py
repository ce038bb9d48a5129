"""Worker processes on this machine: one that dies is replaced, and its task is tried again."""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection, resource_tracker
from typing import Any, TypeVar

import pebble

T = TypeVar("T")
Task = tuple[Future[Any], tuple[Any, ...]]

ATTEMPTS = 3  # of a task whose worker dies
WORKER = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1") | {
    # glibc keeps what is freed: tensors of some megabytes come and go, and new pages cost
    "MALLOC_TRIM_THRESHOLD_": str(2**30),
    "MALLOC_MMAP_THRESHOLD_": str(2**25),  # as much as what is done with them
}
LOGGER = logging.getLogger("largeprompt")
PAUSE = 0.25  # seconds between two looks whether the pool is ended
LONGEST = 600  # characters of a message: a pipe takes them in one piece, from any process
_CONTEXT = multiprocessing.get_context("spawn")


class WorkerDiedError(RuntimeError):
    """A task's worker process died each time that it was tried."""


class TookTooLongError(RuntimeError):
    """A task was ended after the time that it may take."""


class Pool(Executor):
    """Processes of one thread each (see :data:`WORKER`); they take tasks in order.

    Each has a pool of pebble and a thread of its own, so one that dies takes no other task with it.
    The process of a task that takes more than ``limit`` seconds is ended; it imports ``modules``
    before its first task, which the limit does not count.
    """

    def __init__(
        self, workers: int, limit: float | None = None, modules: tuple[str, ...] = ()
    ) -> None:
        self._limit, self._modules = limit, modules
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._before = {name: os.environ.get(name) for name in WORKER}
        os.environ.update(WORKER)  # libraries read them when they load: before a process begins
        reader, self._writer = _CONTEXT.Pipe(duplex=False)
        with interrupts_held():
            threading.Thread(target=_listen, args=(reader,), daemon=True).start()
            self._threads = [
                threading.Thread(target=self._serve, daemon=True) for _ in range(workers)
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
        """End the pool: at once if tasks are cancelled, otherwise when they are done."""
        if cancel_futures:
            self._stopped.set()  # the threads see it, and end their processes
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads if wait else ():
            thread.join()
        self._stopped.set()
        self._writer.close()
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def _serve(self) -> None:
        """Hand tasks to one process, in a thread of its own."""
        process = None
        while (item := self._tasks.get()) is not None:
            future, task = item
            if self._stopped.is_set():
                future.cancel()
            if not future.set_running_or_notify_cancel():
                continue
            for attempt in range(1, ATTEMPTS + 1):
                process = process or pebble.ProcessPool(
                    1, initializer=_begin, initargs=(self._writer, self._modules), context=_CONTEXT
                )
                try:
                    result = self._perform(process, task)
                except (pebble.ProcessExpired, BrokenProcessPool) as error:
                    _end(process)
                    process, died = None, _how(getattr(error, "exitcode", None))
                    told = "a worker process died (%s) in attempt %d of %d"
                    LOGGER.warning(told, died, attempt, ATTEMPTS)
                except TimeoutError:
                    why = f"its process was ended after {self._limit:g} s"
                    future.set_exception(TookTooLongError(why))
                    break
                except BaseException as error:
                    future.set_exception(error)
                    break
                else:
                    future.set_result(result)
                    break
            else:
                why = (
                    f"its worker process died {ATTEMPTS} times ({died}), perhaps for lack of memory"
                )
                future.set_exception(WorkerDiedError(f"{why}: try fewer --workers"))
        if process is not None:
            _end(process)

    def _perform(self, process: pebble.ProcessPool, task: tuple[Any, ...]) -> Any:
        function, given, named = task
        try:
            running = process.schedule(function, given, named, self._limit)
        except RuntimeError as error:  # it died while it had nothing to do
            raise BrokenProcessPool(str(error)) from error
        while not wait([running], PAUSE).done:
            if self._stopped.is_set():
                raise CancelledError
            if not process.active:
                raise BrokenProcessPool("the process ended before it began")
        return running.result()


def _how(code: int | None) -> str:
    """How a process ended."""
    if code is None:
        return "as it began"
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _end(process: pebble.ProcessPool) -> None:
    """End a process, whatever it is at."""
    process.stop()  # type: ignore[no-untyped-call]
    process.join()


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back until the end of the block, and for ever in threads that it begins."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    # which would let Ctrl-C through again in the thread that begins it
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _listen(reader: connection.Connection[Any, Any]) -> None:
    """Log here what workers log, until the last of them is gone."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            level, text = json.loads(reader.recv_bytes())
            # a display that fails is not the worker's fault
            with contextlib.suppress(Exception):
                LOGGER.log(level, "%s", text)


class _Sender(logging.Handler):
    """Sends what is logged in a worker to its parent."""

    def __init__(self, writer: connection.Connection[Any, Any]) -> None:
        super().__init__()
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        said = json.dumps([record.levelno, record.getMessage()[:LONGEST]], ensure_ascii=False)
        with contextlib.suppress(OSError):  # nobody listens any more
            self._writer.send_bytes(said.encode(errors="replace"))


def _begin(writer: connection.Connection[Any, Any], modules: tuple[str, ...]) -> None:
    """What a worker does first. It ends with its parent, however that ends."""
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    logging.captureWarnings(True)
    for logger in (LOGGER, logging.getLogger("py.warnings")):
        logger.addHandler(_Sender(writer))
        logger.propagate = False
    LOGGER.setLevel(logging.INFO)
    for name in modules:
        importlib.import_module(name)


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
