"""Cells over executors: nothing is lost, nothing stale is used, and the numbers do not depend on who computed them or when."""

import contextlib
import dataclasses
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from toy_studies import STUDY, SmallConfig, calls

from largeprompt.runs import execute as module
from largeprompt.runs.execute import Ended, Finished, Job, _one_thread, compute, execute, execute_all, worker_pool
from largeprompt.runs.files import RunError, StorageError
from largeprompt.runs.judging import rule
from largeprompt.runs.store import Run
from largeprompt.runs.study import StudyFigure


def create(folder, config):
    return Run.create(folder, STUDY, config, quick=False, rerun="largeprompt run small")


@pytest.fixture
def scratch(tmp_path):
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


@pytest.fixture
def threads():
    with ThreadPoolExecutor(2) as executor:
        yield executor


def test_run_is_what_the_study_computes_by_itself(tmp_path, threads):
    run = create(tmp_path / "small", SmallConfig())
    seen = []
    verdicts = execute(run, STUDY, SmallConfig(), threads, seen.append, workers=2)
    assert run.intact
    assert run.dataset.identical(STUDY.run(SmallConfig()))
    assert list(verdicts) == run.verdicts == STUDY.judge(run.dataset)
    assert sorted(ended.cell for ended in seen) == sorted(run.cells)
    assert sorted(ended.left for ended in seen) == [0, 1, 2]
    made = run.provenance
    assert (made["workers"], made["seed"], made["resumed_cells"], made["version"]) == (2, 0, 0, run.version)
    assert list(made["cells"]) == list(run.cells)
    assert made["started"] <= made["finished"]
    assert made["machine"]["cpus"] == os.cpu_count()
    assert made["packages"]["numpy"]


def test_order_does_not_depend_on_who_is_done_first(tmp_path, scratch):
    """Cells end in reverse order here; the dataset is in the study's order."""
    (scratch / "backwards").touch()
    config = SmallConfig(str(scratch))
    run = create(tmp_path / "small", config)
    ended = []
    with ThreadPoolExecutor(3) as executor:
        execute(run, STUDY, config, executor, lambda each: ended.append(each.cell))
    assert ended == list(run.cells)[::-1]
    assert run.dataset.drop_attrs().identical(STUDY.run(SmallConfig()).drop_attrs())


def test_failing_cell_is_named_and_loses_no_other(tmp_path, scratch, threads):
    config = SmallConfig(str(scratch))
    (scratch / "fail 2").touch()
    run = create(tmp_path / "small", config)
    with pytest.raises(
        RunError, match=r"small: cell 'size: 2' failed \(InvalidArgumentError: size: got 2.*2 of 3 cells are stored"
    ):
        execute(run, STUDY, config, threads)
    assert run.state == "partial"
    assert "Traceback" in (run.folder / "log.txt").read_text()
    (scratch / "fail 2").unlink()
    (scratch / "calls").unlink()
    execute(run, STUDY, config, threads)
    assert calls(scratch) == ["size: 2"]
    assert run.provenance["resumed_cells"] == 2
    assert set(run.provenance["cells"]) == set(run.cells)
    assert run.intact


def test_resumed_equals_uninterrupted_bit_for_bit(tmp_path, scratch, threads):
    config = SmallConfig(str(scratch))
    whole, broken = (create(tmp_path / name, config) for name in ("whole", "broken"))
    execute(whole, STUDY, config, threads)
    (scratch / "calls").unlink()
    first = compute([Job(broken, STUDY, config, ("size: 2",))], threads)
    assert [ended.cell for ended in first] == ["size: 2"]
    execute(broken, STUDY, config, threads)
    assert calls(scratch) == ["size: 1", "size: 2", "size: 3"]  # none twice
    assert (broken.folder / "dataset.nc").read_bytes() == (whole.folder / "dataset.nc").read_bytes()


def test_damaged_cell_is_computed_again(tmp_path, scratch, threads):
    config = SmallConfig(str(scratch))
    run = create(tmp_path / "small", config)
    execute(run, STUDY, config, threads)
    before = (run.folder / "dataset.nc").read_bytes()
    (scratch / "calls").unlink()
    run.cell_file("size: 3").write_bytes(b"nothing")
    execute(run, STUDY, config, threads)
    assert calls(scratch) == ["size: 3"]
    assert (run.folder / "dataset.nc").read_bytes() == before


def test_changed_config_never_reuses_cells(tmp_path, scratch, threads):
    config, other = SmallConfig(str(scratch)), SmallConfig(str(scratch), scale=2.0)
    execute(create(tmp_path / "small", config), STUDY, config, threads)
    (scratch / "calls").unlink()
    run = create(tmp_path / "small", other)
    execute(run, STUDY, other, threads)
    assert len(calls(scratch)) == 3
    assert run.dataset.identical(STUDY.run(other))


def test_full_disk_keeps_what_is_finished(tmp_path, scratch, monkeypatch):
    config = SmallConfig(str(scratch), sizes=(1, 2, 3, 4, 5, 6))
    run = create(tmp_path / "small", config)
    replace = os.replace

    def full(source, target):
        if "size-3" in str(target):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    with monkeypatch.context() as patch, ThreadPoolExecutor(1) as executor:
        patch.setattr(os, "replace", full)
        with pytest.raises(StorageError, match=r"no space left for .*small .*finished cells are kept"):
            execute(run, STUDY, config, executor)
    assert run.finished_cells >= 2
    assert run.missing()[0] == "size: 3"
    assert len(calls(scratch)) < 6  # those not begun were cancelled
    assert not list(run.folder.rglob("*.part"))
    with ThreadPoolExecutor(1) as executor:
        execute(run, STUDY, config, executor)
    assert run.intact


def test_result_that_cannot_be_made_is_reported(tmp_path, threads):
    """A figure that fails, and a rule with a typo in it: not a verdict, but an error."""

    def draw(data):
        raise ZeroDivisionError("no figure")

    @rule("C9", "?")
    def typo(data):
        return "holds", str(data["valeu"])

    for changes, words in (
        ({"figures": [StudyFigure("one", draw, "")]}, "ZeroDivisionError: no figure"),
        ({"rules": [typo]}, "KeyError: .*valeu"),
    ):
        run = create(tmp_path / "small", SmallConfig())
        with pytest.raises(RunError, match=rf"all cells are stored, but not the result \({words}"):
            execute(run, dataclasses.replace(STUDY, **changes), SmallConfig(), threads)
        assert run.state == "partial"
        assert run.finished_cells == 3


def test_figures_on_a_full_disk_are_a_storage_error(tmp_path, threads, monkeypatch):
    replace = os.replace

    def full(source, target):
        if str(target).endswith(".png"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    run = create(tmp_path / "small", SmallConfig())
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StorageError, match="no space left"):
        execute(run, STUDY, SmallConfig(), threads)


def test_a_python_user_gets_the_figures_too(tmp_path, threads):
    run = create(tmp_path / "small", SmallConfig())
    execute(run, STUDY, SmallConfig(), threads)
    assert [(figure.name, figure.caption, figure.whole) for figure in run.figures] == [("one", "A caption with Σ.", True)]
    without = create(tmp_path / "without", SmallConfig())
    execute(without, STUDY, SmallConfig(), threads, figures=False)
    assert without.intact
    assert without.figures == []


def test_several_runs_in_one_pool(tmp_path, scratch, threads):
    """A run that fails says why and leaves the others alone; each is finished as soon as its cells are there."""
    (scratch / "fail 1").touch()
    configs = [SmallConfig(), SmallConfig(str(scratch)), SmallConfig(seed=3)]
    jobs = [Job(run := create(tmp_path / str(k), config), STUDY, config, run.missing()) for k, config in enumerate(configs)]
    execute(jobs[0].run, STUDY, configs[0], threads)
    jobs[0] = Job(jobs[0].run, STUDY, configs[0], ())
    events = list(execute_all(jobs, threads))
    assert sum(isinstance(event, Ended) for event in events) == 6
    ends = {event.job.run.folder.name: event for event in events if isinstance(event, Finished)}
    assert sorted(ends) == ["0", "1", "2"]
    assert "size: 1" in str(ends["1"].error)
    assert ends["0"].error is ends["2"].error is None
    assert [job.run.state for job in jobs] == ["complete", "partial", "complete"]


def test_workers_change_no_bit(tmp_path, monkeypatch):
    """One process and two give the same file; libraries in them have one thread; this process keeps its settings."""
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    files = []
    for workers in (1, 2):
        run = create(tmp_path / str(workers), SmallConfig())
        with worker_pool(workers) as pool:
            execute(run, STUDY, SmallConfig(), pool, workers=workers)
        files.append((run.folder / "dataset.nc").read_bytes())
        assert set(run.dataset.threads.values) == {"1"}
    assert files[0] == files[1]
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "MKL_NUM_THREADS" not in os.environ


def test_trouble_in_worker_processes(tmp_path, scratch):
    """An exception that cannot be unpickled is reported in words, and so is a worker that dies; what was stored stays."""
    config = SmallConfig(str(scratch))
    (scratch / "fail 2").touch()
    run = create(tmp_path / "small", config)
    with worker_pool(1) as pool, pytest.raises(RunError, match=r"cell 'size: 2' failed \(InvalidArgumentError: size: got 2"):
        execute(run, STUDY, config, pool)
    assert run.finished_cells == 2
    (scratch / "fail 2").rename(scratch / "die 2")
    with worker_pool(1) as pool, pytest.raises(RunError, match="a worker process died"):
        execute(run, STUDY, config, pool)
    assert run.finished_cells == 2


SLOW = """
import signal
import sys
from toy_studies import STUDY, SmallConfig
from largeprompt.runs.execute import execute, worker_pool
from largeprompt.runs.store import Run
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell began the tests in the background
    config = SmallConfig(sys.argv[2])
    run = Run.create(sys.argv[1], STUDY, config, quick=False, rerun="")
    with worker_pool(2) as pool:
        execute(run, STUDY, config, pool)
"""


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals of POSIX")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "killed"])
def test_stopped_run_leaves_no_process_and_resumes(tmp_path, scratch, how, threads):
    """SIGINT goes to the whole group, as from a terminal; SIGKILL to the parent only, whose workers must notice."""
    config = SmallConfig(str(scratch))
    (scratch / "sleep 3").touch()
    (tmp_path / "slow.py").write_text(SLOW.replace("Run.create(sys.argv[1]", "Run.create(__import__('pathlib').Path(sys.argv[1])"))
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, str(tmp_path / "slow.py"), str(tmp_path / "small"), str(scratch)]
    process = subprocess.Popen(command, env=environment, start_new_session=True, stderr=subprocess.PIPE, text=True)
    try:
        run = None
        for _ in range(600):
            with contextlib.suppress(RunError):
                run = Run.open(tmp_path / "small")
            if run and run.finished_cells == 2 and len(calls(scratch)) == 3:
                break
            time.sleep(0.1)
        assert run
        assert run.finished_cells == 2
        begun = time.monotonic()
        if how == signal.SIGINT:
            os.killpg(process.pid, how)
        else:
            process.send_signal(how)
        _, printed = process.communicate(timeout=40)  # the pipe ends with the last process that holds it
        assert time.monotonic() - begun < 30
        assert process.returncode != 0
        assert printed.count("Traceback") == (1 if how == signal.SIGINT else 0)  # the parent's own, and none of a worker
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.stderr.close()
    (scratch / "sleep 3").unlink()
    (scratch / "calls").unlink()
    execute(run, STUDY, config, threads)
    assert calls(scratch) == ["size: 3"]
    assert run.intact


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals of POSIX")
def test_interrupts_are_held_back_not_lost():
    reached = []

    def interrupted():
        with module._interrupts_held():
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)  # to this thread: another would not hold it back
            reached.append(True)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell began the tests in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
    finally:
        signal.signal(signal.SIGINT, before)
    assert reached


def test_a_cell_runs_on_one_thread_and_gives_the_rest_back():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with contextlib.suppress(RuntimeError), _one_thread():
            assert torch.get_num_threads() == 1
            raise RuntimeError
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
