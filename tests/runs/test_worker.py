"""What a worker does with a cell: one thread, within its time, with the right code, stored or sent
back.
"""

import contextlib
import dataclasses
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import toy_studies
from toy_studies import STUDY, SmallConfig

from largeprompt.runs.files import RunError, from_bytes
from largeprompt.runs.pool import TookTooLongError
from largeprompt.runs.sources import fingerprint
from largeprompt.runs.store import Run
from largeprompt.runs.worker import limited, one_thread, prepared, work

SOURCE = f"{toy_studies.__file__}:STUDY"


def test_a_cell_runs_on_one_thread_and_gives_the_rest_back():
    """Also where several run side by side in threads of one process."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)

    def count(_):
        with one_thread():
            time.sleep(0.01)
            return torch.get_num_threads()

    try:
        with contextlib.suppress(RuntimeError), one_thread():
            assert torch.get_num_threads() == 1
            raise RuntimeError
        assert torch.get_num_threads() == 2
        with ThreadPoolExecutor(4) as threads:
            assert set(threads.map(count, range(12))) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_cell_of_a_source_is_what_the_study_computes():
    config = dataclasses.asdict(SmallConfig())
    expected = STUDY.cells(SmallConfig())["size: 2"].compute(SmallConfig())
    assert prepared(SOURCE, config, "size: 2", fingerprint(STUDY.computing))().identical(expected)
    with pytest.raises(
        RunError, match=r"worker's code of small is not that of the run: install the same version"
    ):
        prepared(SOURCE, config, "size: 2", "of another version")


def test_what_takes_too_long_is_ended_between_two_steps():
    def forever():
        with limited(0.1):
            while True:
                time.sleep(0.01)

    begun = time.monotonic()
    with pytest.raises(TookTooLongError, match=r"ended after 0.1 s, .*--cell-limit"):
        forever()
    assert time.monotonic() - begun < 20
    with limited(30.0), limited(None):
        pass
    time.sleep(0.2)  # no exception comes after the block


def test_a_cell_is_stored_sent_back_or_reported(tmp_path):
    run = Run.create(tmp_path / "small", STUDY, SmallConfig(), quick=False, rerun="")
    cell = STUDY.cells(SmallConfig())["size: 1"]
    (run.folder / "mark").touch()

    def task():
        return cell.compute(SmallConfig())

    sent = work(run, lambda: task, "size: 1", "another mark", None)
    assert from_bytes(sent.content).identical(task())
    assert run.finished_cells == 0
    assert work(run, lambda: task, "size: 1", "mark", None).content == b""
    assert run.read_cell("size: 1").identical(task())
    failed = work(run, lambda: 1 / 0, "size: 2", "mark", None)
    assert failed.failure == "ZeroDivisionError: division by zero"
    assert "Traceback" in failed.trace
    assert not failed.storage

    def late():
        time.sleep(2.2)  # what it needs is imported
        return task

    assert not work(run, late, "size: 2", "mark", 2.0).failure

    def slow():
        return [time.sleep(0.01) for _ in range(10**4)]

    assert "ended after 0.1 s" in work(run, lambda: slow, "size: 3", "mark", 0.1).failure
