"""Worker processes: replaced when they die, ended when they hang, gone when the pool is."""

import logging
import operator
import os
import pickle
import signal
import threading
import time

import pytest
from toy_studies import shout

from largeprompt.runs.pool import LOGGER, WORKER, Pool, TookTooLongError, WorkerDiedError


@pytest.fixture(scope="module")
def pool():
    found = Pool(1, limit=2.0)
    yield found
    found.shutdown()


@pytest.fixture
def heard(caplog, monkeypatch):
    monkeypatch.setattr(LOGGER, "propagate", True)
    with caplog.at_level(logging.INFO, LOGGER.name):
        yield caplog


def until(true):
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_tasks_are_performed_in_another_process(pool):
    first, second = pool.submit(os.getpid), pool.submit(os.getpid)
    assert first.result(60) == second.result(60) != os.getpid()
    assert pool.submit(int, "12", base=3).result(60) == 5
    assert pool.submit(os.getenv, "OMP_NUM_THREADS").result(60) == "1"


def test_exceptions_come_back_and_the_worker_stays(pool):
    before = pool.submit(os.getpid).result(60)
    for call, kind in (((int, "12x"), ValueError), ((os.listdir, "/nowhere"), FileNotFoundError)):
        with pytest.raises(kind):
            pool.submit(*call).result(60)
    for call in ((lambda: None,), (eval, "lambda: None")):  # one way and the other
        with pytest.raises((AttributeError, TypeError, pickle.PicklingError)):
            pool.submit(*call).result(60)
    assert pool.submit(operator.add, 1, 2).result(60) == 3
    assert pool.submit(os.getpid).result(60) == before


def test_a_worker_that_dies_is_replaced_and_its_task_tried_again(pool, tmp_path, heard):
    assert pool.submit(shout, str(tmp_path / "once")).result(60) == "second attempt"
    assert "a worker process died (exit code 3) in attempt 1 of 3" in heard.text
    with pytest.raises(WorkerDiedError, match=r"died 3 times \(signal 9\).*fewer --workers"):
        pool.submit(signal.raise_signal, signal.SIGKILL).result(60)
    assert pool.submit(operator.add, 1, 2).result(60) == 3


def test_a_worker_that_dies_with_nothing_to_do_is_replaced(pool):
    for pause in (0.0, 0.3):  # before and after its death is noticed
        os.kill(pool.submit(os.getpid).result(60), signal.SIGKILL)
        time.sleep(pause)
        assert pool.submit(operator.add, 1, 2).result(60) == 3


def test_a_task_that_hangs_is_ended(pool):
    begun = time.monotonic()
    with pytest.raises(TookTooLongError, match="was ended after 2 s"):
        pool.submit(time.sleep, 60).result(60)
    assert time.monotonic() - begun < 20
    assert pool.submit(operator.add, 1, 2).result(60) == 3


def test_what_workers_log_is_logged_here(pool, heard):
    pool.submit(LOGGER.info, "at step %d", 3).result(60)
    pool.submit(LOGGER.debug, "never mind").result(60)
    pool.submit(LOGGER.warning, "\ud800" * 10**5).result(60)
    until(lambda: len(heard.records) == 2)
    assert heard.records[0].getMessage() == "at step 3"
    assert len(heard.records[1].getMessage()) < 1000


def test_a_display_that_fails_ends_nothing(pool):
    met = []

    class Broken(logging.Handler):
        def emit(self, record):
            met.append(record)
            raise OSError("nobody reads")

    handler = Broken()
    LOGGER.addHandler(handler)
    try:
        assert pool.submit(LOGGER.warning, "first").result(30) is None
        until(lambda: met)
    finally:
        LOGGER.removeHandler(handler)
    assert pool.submit(operator.add, 1, 2).result(30) == 3


def test_a_cancelled_pool_leaves_no_process_and_no_trace(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    before = threading.active_count()
    pool = Pool(2, modules=("decimal",))
    pids = {pool.submit(os.getpid).result(60)}
    assert os.environ["OMP_NUM_THREADS"] == WORKER["OMP_NUM_THREADS"] == "1"
    sleeping = [pool.submit(time.sleep, 60) for _ in range(4)]
    time.sleep(0.2)
    begun = time.monotonic()
    pool.shutdown(cancel_futures=True)
    assert time.monotonic() - begun < 20
    assert all(future.cancelled() or future.exception() for future in sleeping)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    with pytest.raises(RuntimeError, match="shut down"):
        pool.submit(os.getpid)
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "MKL_NUM_THREADS" not in os.environ
    until(lambda: threading.active_count() <= before)
