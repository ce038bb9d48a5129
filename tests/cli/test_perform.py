"""A study performed from the command line: failing cells, folders that refuse, interrupts and what
the terminal shows.
"""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time

import pytest
from fake_studies import Fakes
from typer.testing import CliRunner

from largeprompt.cli.app import app
from largeprompt.runs.store import Run

# a shell that starts the tests in the background makes them deaf to Ctrl-C, and their children too
LISTEN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"


def command(*words):
    return CliRunner().invoke(app, list(map(str, words)))


@pytest.fixture
def fakes(monkeypatch):
    return Fakes().install(monkeypatch)


def test_failing_cell(tmp_path, fakes):
    fakes.raising[2] = ZeroDivisionError("by zero")
    result = command("run", "first", "--out", tmp_path)
    assert result.exit_code == 1
    assert (
        "error: first: cell 'size: 2' failed (ZeroDivisionError: by zero). 2 of 3 cells are stored "
        "and kept" in result.output
    )
    assert "Traceback" not in result.output
    fakes.raising.clear()
    fakes.calls.clear()
    result = command("run", "first", "--out", tmp_path)
    assert result.exit_code == 0
    assert "2 of 3 cells are stored; resuming" in result.output
    assert fakes.calls == [2]


def test_an_import_that_ctrl_c_met_says_how_to_resume(tmp_path, fakes, monkeypatch):
    """A module in C that loads while Ctrl-C comes raises ImportError of it."""

    def met(*given, **options):
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise ImportError("initialization failed")  # noqa: B904

    for place in ("runs.execute.execute_all", "runs.finish.provenance"):
        with monkeypatch.context() as patch:
            patch.setattr(f"largeprompt.{place}", met)
            result = command("run", "first", "--out", tmp_path)
        assert result.exit_code == 130
        assert result.stderr.endswith("The same command resumes.\n")


MOMENTS = ["config.json", ".nc", "dataset.nc", "verdicts.json", "provenance.json"]


@pytest.mark.parametrize(
    ("reason", "moment"),
    [
        (errno.EROFS, "config.json"),
        *((reason, moment) for reason in (errno.EACCES, errno.ENOSPC) for moment in MOMENTS),
    ],
)
def test_folder_that_refuses(tmp_path, fakes, monkeypatch, reason, moment):
    replace = os.replace

    def refuse(source, target):
        if str(target).endswith(moment):
            raise OSError(reason, os.strerror(reason))
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        result = command("run", "first", "--out", tmp_path)
    assert result.exit_code == 1
    assert "Traceback" not in result.output
    assert str(tmp_path / "first") in result.output
    full = reason == errno.ENOSPC
    assert (
        "finished cells are kept. Free some space" if full else "--out: cannot write to"
    ) in result.output
    assert not list(tmp_path.rglob("*.part"))
    before = len(fakes.calls)
    assert command("run", "first", "--out", tmp_path).exit_code == 0
    if moment in ("dataset.nc", "verdicts.json", "provenance.json"):
        assert len(fakes.calls) == before  # nothing was lost


def test_folder_that_cannot_be_made(tmp_path, fakes):
    (tmp_path / "file").write_text("in the way")
    result = command("run", "first", "--out", tmp_path / "file" / "runs")
    assert result.exit_code == 1
    assert "--out: cannot write to" in result.output
    assert "Traceback" not in result.output


def test_damaged_cell_is_computed_again(tmp_path, fakes):
    command("run", "first", "--out", tmp_path)
    run = Run.open(tmp_path / "first")
    run.cell_file("size: 1").write_bytes(b"\x89HDF")
    (run.folder / "provenance.json").unlink()
    assert command("run", "first", "--out", tmp_path).exit_code == 0
    assert len(fakes.calls) == 4
    assert run.intact
    assert list((run.folder / "cells").glob("*.corrupt"))


def test_interrupt_in_a_cell(tmp_path, fakes):
    fakes.raising[3] = KeyboardInterrupt()
    result = command("run", "first", "--out", tmp_path, "--workers", "1")
    assert result.exit_code == 130
    assert "interrupted: finished cells are kept. The same command resumes." in result.output
    assert Run.open(tmp_path / "first").finished_cells == 2
    assert (
        "without --fresh"
        in command("run", "first", "--out", tmp_path, "--workers", "1", "--fresh").output
    )


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals of POSIX")
def test_real_interrupt_of_real_processes(tmp_path):
    """Ctrl-C reaches the whole group, twice: one sentence, exit 130, and no process stays."""
    words = ["run", "training", "--out", str(tmp_path), "--workers", "2"]
    process = subprocess.Popen(
        [sys.executable, "-c", f"{LISTEN}; from largeprompt.cli.app import app; app()", *words],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for _ in range(600):
            if (tmp_path / "training" / "log.txt").exists():
                break
            time.sleep(0.1)
        time.sleep(1.0)
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.2)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)  # impatience changes nothing
        # ends with the last process that holds the pipe
        _, printed = process.communicate(timeout=40)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130, printed
    assert printed == "interrupted: finished cells are kept. The same command resumes.\n"
    assert Run.open(tmp_path / "training").state == "partial"


def test_terminal_shows_a_table_and_the_numbers(tmp_path, fakes, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    result = command("run", "first", "--out", tmp_path)
    assert "C9 holds. Is it? 1." in result.output
    assert "3/3" in result.output
    assert "\t" not in command("runs", "--out", tmp_path).output
