"""What a worker does with a cell: one thread, the right code, stored or sent back."""

import contextlib
import pickle
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import toy_studies
from toy_studies import STUDY, SmallConfig

from largeprompt.runs.files import RunError
from largeprompt.runs.netcdf import from_bytes
from largeprompt.runs.sources import fingerprint
from largeprompt.runs.store import Run
from largeprompt.runs.worker import computed, one_thread, work

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
    config = SmallConfig(scale=2.0)
    expected = STUDY.cells(config)["size: 2"].compute(config)
    code, settings = fingerprint(STUDY.computing), pickle.dumps(config)
    assert computed(SOURCE, code, settings, "size: 2").identical(expected)
    with pytest.raises(
        RunError, match=r"worker's code of small is not that of the run: install the same version"
    ):
        computed(SOURCE, "of another version", settings, "size: 2")


def test_study_and_settings_are_made_once_for_each_worker_and_run(monkeypatch):
    asked = []
    monkeypatch.setattr(
        "largeprompt.runs.worker.find_study", lambda source: asked.append(source) or STUDY
    )
    settings = pickle.dumps(SmallConfig(scale=3.0))
    for cell in ("size: 1", "size: 2", "size: 3"):
        computed("here", fingerprint(STUDY.computing), settings, cell)
    assert asked == ["here"]


def test_a_cell_is_stored_sent_back_or_reported(tmp_path):
    run = Run.create(tmp_path / "small", STUDY, SmallConfig(), quick=False, rerun="")
    cell = STUDY.cells(SmallConfig())["size: 1"]
    (run.folder / "mark").touch()

    def task():
        return cell.compute(SmallConfig())

    sent = work(run, task, "size: 1", "another mark", None)
    assert from_bytes(sent.content).identical(task())
    assert run.finished_cells == 0
    assert work(run, task, "size: 1", "mark", None).content == b""
    assert run.read_cell("size: 1").identical(task())
    failed = work(run, lambda: 1 / 0, "size: 2", "mark", None)
    assert failed.failure == "ZeroDivisionError: division by zero"
    assert "Traceback" in failed.trace
    assert not failed.storage
    (tmp_path / "elsewhere").mkdir()
    shutil.rmtree(run.folder / "cells")
    (run.folder / "cells").symlink_to(tmp_path / "elsewhere")
    refused = work(run, task, "size: 2", "mark", None)
    assert refused.storage
    assert "cells is a link" in refused.failure
    assert not list((tmp_path / "elsewhere").iterdir())
