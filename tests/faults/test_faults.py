"""Real processes killed, interrupted, starved and slowed: nothing is lost, nothing stays behind,
and the numbers are the same.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from commands import ROUNDS, SIZES, Command, ended, living, until, workers
from toy_studies import calls

from largeprompt.runs.store import Run

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="looks for processes in /proc"
)
LONG = pytest.mark.skipif(ROUNDS < 2, reason="make faults")


@pytest.fixture
def command(tmp_path):
    return Command(tmp_path)


@pytest.fixture
def expected(command, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as in workers
    with ThreadPoolExecutor(2) as threads:
        return command.undisturbed(tmp_path / "undisturbed", threads)


def finished_like(command, expected):
    """The run is complete, with these bytes, and without drafts."""
    assert command.complete
    assert (command.folder / "dataset.nc").read_bytes() == expected
    assert not list(command.folder.rglob("*.part"))


def finish(command, expected, *words, **environment):
    code, out, err = ended(command.start(*words, **environment))
    assert code == 0, err
    assert "Traceback" not in out + err
    finished_like(command, expected)


@pytest.mark.parametrize("target", ["main", "worker", pytest.param("dask", marks=LONG)])
def test_killed_at_random_times(command, expected, target):
    """kill -9 of the command, of one of its workers or of a Dask worker; 2 in the short round, 20 +
    20 + 10 in the long one.

    With those of schedulers below that makes 56.
    """
    chance, kills = random.Random(17), 0
    if target == "dask":
        pytest.importorskip("distributed")
    while kills < (1 if ROUNDS < 2 else 10 if target == "dask" else 20):
        process = command.start(
            "--workers", 2, *(["--executor", "dask"] if target == "dask" else [])
        )
        command.begun(process)
        time.sleep(chance.uniform(0.0, 10.0 if target == "dask" else 5.0))
        if target == "main":
            before = living(process.pid)
            process.kill()
            code, _, err = ended(process)
            kills += code == -signal.SIGKILL and bool(before)
            assert "Traceback" not in err
        else:
            found = workers(process.pid)
            if found:
                os.kill(chance.choice(found), signal.SIGKILL)
                kills += 1
            code, out, err = ended(process)
            assert code == 0, err
            assert "Traceback" not in out + err
            finished_like(command, expected)
        if command.complete:
            shutil.rmtree(command.folder)
    if target == "main":
        finish(command, expected, "--workers", 1)


def test_interrupted_at_random_times(command, expected):
    """Ctrl-C, which the whole session hears, at any time once the command runs: exit 130, a hint,
    and no traceback.
    """
    chance, stopped = random.Random(18), 0
    while stopped < 1 + 9 * (ROUNDS > 1):
        process = command.start("--workers", 2)
        command.begun(process)
        time.sleep(chance.uniform(0.0, 4.0))
        computing = bool(workers(process.pid))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        code, out, err = ended(process)
        assert "Traceback" not in out + err
        if code == 130:
            stopped += 1
            hint = "interrupted: finished cells are kept. The same command resumes.\n"
            # a command that goes on with a run may still load its modules
            assert err == hint or (err == "interrupted\n" and not computing)
        else:
            assert (code, command.complete) == (0, True), err
            shutil.rmtree(command.folder)
    if ROUNDS > 1:
        finish(command, expected)


@LONG
def test_interrupted_with_dask(command, expected):
    """At first and in the midst of cells; the workers of the cluster go with it."""
    pytest.importorskip("distributed")
    for begun in (False, True):
        before = len(calls(command.scratch))
        process = command.start("--executor", "dask", "--workers", 1)
        command.begun(process)
        if begun:
            until(lambda known=before: len(calls(command.scratch)) > known, 100)
        os.killpg(process.pid, signal.SIGINT)
        code, _, err = ended(process)
        assert code == 130, err
        assert err == "interrupted: finished cells are kept. The same command resumes.\n"
    finish(command, expected, "--executor", "dask", "--workers", 1)


def test_a_disk_that_refuses_and_then_does_not(command, expected):
    """The kernel refuses every write beyond some bytes of a file, in the workers too."""
    process = command.start(
        "--workers",
        1,
        before="import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))",
    )
    code, out, err = ended(process)
    assert code == 1
    assert err.startswith("error: no space left for")
    assert "Traceback" not in out + err
    if ROUNDS > 1:
        finish(command, expected)


JUMPS = """
import os, random, time
chance, fsync, replace, now = random.Random(19), os.fsync, os.replace, time.time
def slow(call):
    def slowly(*given):
        time.sleep(chance.uniform(0.0, 0.1))
        return call(*given)
    return slowly
os.fsync, os.replace = slow(fsync), slow(replace)
time.time = lambda: now() + chance.choice([-1e6, 0.0, 1e6])
"""


def test_slow_disks_and_clocks_that_jump(command, expected, tmp_path, monkeypatch):
    """As over a network: writes take their time, and the clock goes back and forth by days."""
    if ROUNDS > 1:
        (tmp_path / "patched").mkdir()
        (tmp_path / "patched" / "sitecustomize.py").write_text(JUMPS)
        finish(
            command, expected, PYTHONPATH=os.pathsep.join([str(tmp_path / "patched"), *sys.path])
        )
    found = {}
    exec(
        JUMPS.replace("os.fsync, os.replace =", "fsync, replace =").replace(
            "time.time =", "jumping ="
        ),
        found,
    )
    monkeypatch.setattr(os, "fsync", found["fsync"])
    monkeypatch.setattr(os, "replace", found["replace"])
    monkeypatch.setattr(time, "time", found["jumping"])
    with ThreadPoolExecutor(3) as threads:
        assert command.undisturbed(tmp_path / "slow", threads) == expected
    made = Run.open(tmp_path / "slow").provenance
    assert made["seconds"] >= 0
    assert all(0 < seconds < 60 for seconds in made["cells"].values())


@LONG
def test_a_cell_that_hangs_is_ended(command, expected):
    """Inside a call of a library, with its process; the others are stored, and it is computed when
    it does not hang.
    """
    (command.scratch / "sleep 3").touch()
    code, out, err = ended(command.start("--workers", 2, "--cell-limit", 12))
    assert code == 1
    assert "cell 'size: 3' failed (TookTooLongError: its process was ended after" in err
    assert "Traceback" not in out + err
    assert command.run.finished_cells == 5
    (command.scratch / "sleep 3").unlink()
    finish(command, expected)


@LONG
def test_a_worker_of_dask_that_hangs_is_ended(command, expected):
    """Inside a call of a library, with its process: tried again, at most twice, and then named."""
    pytest.importorskip("distributed")
    (command.scratch / "sleep 3").touch()
    words = ("--executor", "dask", "--workers", 2, "--cell-limit", 12)
    code, out, err = ended(command.start(*words), 300)
    assert code == 1
    assert "cell 'size: 3' failed (KilledWorker" in err
    assert "A worker is ended when its cell takes more than 12 s" in err
    assert "Traceback" not in out + err
    assert calls(command.scratch).count("size: 3") == 1 + 3  # the undisturbed run counts too
    assert command.run.finished_cells == 5
    (command.scratch / "sleep 3").unlink()
    finish(command, expected)


@LONG
def test_two_writers(command, expected):
    (command.scratch / "hold").touch()
    first = command.start("--workers", 1)
    try:
        until(lambda: len(calls(command.scratch)) > len(SIZES), 100)  # it computes
        for _ in range(2):
            code, _, err = ended(command.start("--workers", 1))
            assert code == 1
            assert "is being computed by another command; wait until it ends" in err
    finally:
        (command.scratch / "hold").unlink()
        code, *_ = ended(first)
    assert code == 0
    finished_like(command, expected)


@LONG
def test_a_worker_of_dask_that_dies_is_replaced(command):
    """Its cell is tried again, at most twice, and then named; the others are stored."""
    pytest.importorskip("distributed")
    (command.scratch / "die 2").touch()
    code, _, err = ended(command.start("--executor", "dask", "--workers", 1))
    assert code == 1
    assert "cell 'size: 2' failed (KilledWorker" in err
    assert calls(command.scratch).count("size: 2") == 3
    assert command.run.finished_cells == 5


@LONG
def test_a_scheduler_killed_at_random_times(command, expected, tmp_path):
    """The command ends with a sentence; with another scheduler it goes on."""
    pytest.importorskip("distributed")
    chance, kills = random.Random(20), 0
    while kills < 6:
        place = tmp_path / f"scheduler-{kills}.json"
        cluster = [start_dask(kind, place) for kind in ("scheduler", "worker")]
        try:
            process = command.start("--executor", f"dask:{place}")
            command.begun(process)
            time.sleep(chance.uniform(2.0, 8.0))
            cluster[0].kill()
            killed = process.poll() is None
            code, out, err = ended(process)
        finally:
            for each in cluster:
                os.killpg(each.pid, signal.SIGKILL)
                each.wait()
        assert "Traceback" not in out + err
        if killed and not command.complete:
            kills += 1
            assert code == 1
            assert (
                "gave it up; has the scheduler ended?" in err or "no Dask scheduler answers" in err
            )
        elif command.complete:
            finished_like(command, expected)
            shutil.rmtree(command.folder)
    finish(command, expected)


def start_dask(kind, place):
    words = [
        sys.executable,
        "-m",
        f"distributed.cli.dask_{kind}",
        "--scheduler-file",
        str(place),
        "--no-dashboard",
    ]
    words += ["--port", "0", "--host", "127.0.0.1"] if kind == "scheduler" else ["--nthreads", "1"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        words, env=environment, stderr=subprocess.DEVNULL, start_new_session=True
    )
    until(place.exists, 60)
    return process
