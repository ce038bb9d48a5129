"""Cells over executors: nothing is lost, nothing stale is used, and the numbers do not depend on
who computed them or when.
"""

import dataclasses
import errno
import os
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from toy_studies import STUDY, SmallConfig, calls

from largeprompt.runs.execute import Ended, compute, execute, execute_all
from largeprompt.runs.executors import executor
from largeprompt.runs.files import RunError, StorageError
from largeprompt.runs.finish import Finished, Job
from largeprompt.runs.judging import rule
from largeprompt.runs.netcdf import encode
from largeprompt.runs.store import Run
from largeprompt.runs.study import StudyFigure
from largeprompt.runs.worker import work


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
    assert (made["workers"], made["seed"], made["resumed_cells"], made["version"]) == (
        2,
        0,
        0,
        run.version,
    )
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
        RunError,
        match=r"small: cell 'size: 2' failed \(InvalidArgumentError: size: got 2.*2 of 3 cells are "
        r"stored",
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
        with pytest.raises(
            StorageError, match=r"no space left for .*small .*finished cells are kept"
        ):
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
    assert [(figure.name, figure.caption) for figure in run.figures] == [
        ("one", "A caption with Σ.")
    ]
    assert run.intact


def test_several_runs_in_one_pool(tmp_path, scratch, threads):
    """A run that fails says why and leaves the others alone; each is finished as soon as its cells
    are there.
    """
    (scratch / "fail 1").touch()
    configs = [SmallConfig(), SmallConfig(str(scratch)), SmallConfig(seed=3)]
    jobs = [
        Job(run := create(tmp_path / str(k), config), STUDY, config, run.missing())
        for k, config in enumerate(configs)
    ]
    execute(jobs[0].run, STUDY, configs[0], threads)
    jobs[0] = Job(jobs[0].run, STUDY, configs[0], ())
    events = list(execute_all(jobs, threads))
    assert sum(isinstance(event, Ended) for event in events) == 6
    ends = {event.job.run.folder.name: event for event in events if isinstance(event, Finished)}
    assert sorted(ends) == ["0", "1", "2"]
    assert "size: 1" in str(ends["1"].error)
    assert ends["0"].error is ends["2"].error is None
    assert [job.run.state for job in jobs] == ["complete", "partial", "complete"]


def test_processes_change_no_bit(tmp_path, monkeypatch):
    """Threads of one process and two processes give the same file; this process stays as it is."""
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    files = []
    for name, count in (("concurrent.futures:ThreadPoolExecutor", 1), ("local", 2)):
        run = create(tmp_path / name[:5], SmallConfig())
        with executor(name, count) as pool:
            execute(run, STUDY, SmallConfig(), pool, workers=count)
        data = run.dataset
        assert set(data.threads.values) == {"7" if count == 1 else "1"}
        files.append(encode(data.drop_vars("threads")))
    assert files[0] == files[1]
    assert os.environ["OMP_NUM_THREADS"] == "7"


def test_trouble_in_worker_processes(tmp_path, scratch, monkeypatch):
    """An exception that cannot be unpickled is reported in words, and so is a worker that dies each
    time; what was stored stays.
    """
    monkeypatch.setattr("largeprompt.runs.pool.ATTEMPTS", 2)  # each loads PyTorch
    config = SmallConfig(str(scratch))
    (scratch / "fail 2").touch()
    (scratch / "die 3").touch()
    run = create(tmp_path / "small", config)
    with (
        executor("local", 2) as pool,
        pytest.raises(RunError, match=r"cell 'size: [23]' failed .*, and 1 more") as caught,
    ):
        execute(run, STUDY, config, pool)
    logged = (run.folder / "log.txt").read_text()
    assert "cell 'size: 2' failed: InvalidArgumentError: size: got 2" in logged
    assert (
        "cell 'size: 3' failed: WorkerDiedError: its worker process died 2 times (exit code 9)"
        in logged
    )
    assert str(caught.value).count("size") >= 1
    assert calls(scratch) == ["size: 1", "size: 2", *["size: 3"] * 2]
    assert run.finished_cells == 1


def test_a_second_writer_refuses(tmp_path, threads):
    run = create(tmp_path / "small", SmallConfig())
    job = Job(run, STUDY, SmallConfig(), run.missing())
    first = execute_all([job], threads)
    assert next(first).outcome.failure == ""
    with pytest.raises(
        RunError, match=r"small is being computed by another command; wait until it ends"
    ):
        next(execute_all([job], threads))
    with pytest.raises(RunError, match="another command"):
        run.clear()
    list(first)
    assert run.intact
    with pytest.raises(RunError, match="taken by another command"):
        next(
            execute_all(
                [dataclasses.replace(job, run=dataclasses.replace(run, quick=True))], threads
            )
        )


def test_a_cell_is_sent_back_where_the_folder_is_not_seen(tmp_path, threads, monkeypatch):
    """As on a machine without the shared folder: the worker writes nothing, this process stores the
    same bytes.
    """
    here, there = (create(tmp_path / name, SmallConfig()) for name in ("here", "there"))
    execute(here, STUDY, SmallConfig(), threads)

    def elsewhere(run, task, cell, mark, limit):
        outcome = work(
            dataclasses.replace(run, folder=tmp_path / "not mounted"), task, cell, mark, limit
        )
        assert outcome.content
        return outcome

    monkeypatch.setattr("largeprompt.runs.execute.work", elsewhere)
    execute(there, STUDY, SmallConfig(), threads)
    assert not (tmp_path / "not mounted").exists()
    assert (there.folder / "dataset.nc").read_bytes() == (here.folder / "dataset.nc").read_bytes()
    assert there.provenance["files"]["dataset.nc"] == here.provenance["files"]["dataset.nc"]


def test_an_executor_that_gives_up_is_told(tmp_path, threads):
    class Broken(ThreadPoolExecutor):
        def submit(self, *args):
            future = super().submit(time.sleep, 0)
            future.result()
            future = Future()
            future.cancel()
            future.set_running_or_notify_cancel()
            return future

    run = create(tmp_path / "small", SmallConfig())
    with Broken(1) as broken, pytest.raises(RunError, match="its executor gave it up"):
        execute(run, STUDY, SmallConfig(), broken)
