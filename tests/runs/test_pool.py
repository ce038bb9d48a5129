"""Worker processes: replaced when they die, ended when they hang, gone when the pool is."""

import logging
import operator
import os
import pickle
import signal
import time

import pytest
from toy_studies import shout

from largeprompt.runs.pool import LOGGER, Pool, TookTooLongError, WorkerDiedError


@pytest.fixture
def pool():
    found = Pool(1, limit=1.0)
    yield found
    found.shutdown()


def test_tasks_are_performed_in_another_process(pool):
    first, second = pool.submit(os.getpid), pool.submit(os.getpid)
    assert first.result(60) == second.result(60) != os.getpid()
    assert pool.submit(operator.add, 1, b=2).exception(60).args  # operator.add takes no keywords
    assert pool.submit(int, "12", base=3).result(60) == 5


def test_exceptions_come_back_and_the_worker_stays(pool):
    before = pool.submit(os.getpid).result(60)
    for call, kind in ((("12x",), ValueError), (("/nowhere",), FileNotFoundError)):
        with pytest.raises(kind):
            pool.submit(int if kind is ValueError else os.listdir, *call).result(60)
    with pytest.raises((AttributeError, pickle.PicklingError), match="pickle"):
        pool.submit(lambda: None).result(60)
    with pytest.raises(RuntimeError, match="cannot be sent back"):
        pool.submit(eval, "lambda: None").result(60)
    assert pool.submit(os.getpid).result(60) == before


def test_a_worker_that_dies_is_replaced_and_its_task_tried_again(pool, tmp_path, caplog):
    LOGGER.propagate = True
    with caplog.at_level(logging.WARNING, LOGGER.name):
        assert pool.submit(shout, str(tmp_path / "once")).result(60) == "second attempt"
    assert "a worker process died (exit code 3) in attempt 1 of 3" in caplog.text
    with pytest.raises(WorkerDiedError, match=r"died 3 times \(signal 9\).*fewer --workers"):
        pool.submit(signal.raise_signal, signal.SIGKILL).result(60)
    assert pool.submit(operator.add, 1, 2).result(60) == 3


def test_a_task_that_hangs_is_ended(pool):
    pool.submit(os.getpid).result(60)
    begun = time.monotonic()
    with pytest.raises(TookTooLongError, match="was ended after 1 s"):
        pool.submit(time.sleep, 60).result(60)
    assert time.monotonic() - begun < 20
    assert pool.submit(operator.add, 1, 2).result(60) == 3


def test_what_workers_log_is_logged_here(pool, caplog):
    LOGGER.propagate = True
    with caplog.at_level(logging.INFO, LOGGER.name):
        pool.submit(LOGGER.info, "at step %d", 3).result(60)
        pool.submit(LOGGER.debug, "never mind").result(60)
    assert [record.getMessage() for record in caplog.records] == ["at step 3"]


def test_a_cancelled_pool_leaves_no_process():
    pool = Pool(2)
    pids = {pool.submit(os.getpid).result(60)}
    sleeping = [pool.submit(time.sleep, 60) for _ in range(4)]
    time.sleep(0.2)
    begun = time.monotonic()
    pool.shutdown(cancel_futures=True)
    assert time.monotonic() - begun < 20
    assert all(
        future.cancelled() or isinstance(future.exception(), WorkerDiedError) for future in sleeping
    )
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    with pytest.raises(RuntimeError, match="shut down"):
        pool.submit(os.getpid)


def test_a_display_that_fails_does_not_mix_up_answers(pool):
    """An exception while a task is waited for left its answer in the pipe, where the next task
    found it.
    """

    class Broken(logging.Handler):
        def emit(self, record):
            raise OSError("nobody reads")

    handler = Broken()
    LOGGER.addHandler(handler)
    try:
        assert pool.submit(LOGGER.warning, "first").result(30) is None
    finally:
        LOGGER.removeHandler(handler)
    assert pool.submit(operator.add, 1, 2).result(30) == 3
