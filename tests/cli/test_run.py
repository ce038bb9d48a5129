"""``largeprompt run`` and ``largeprompt runs`` as their user types them."""

import contextlib
import errno
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest
import xarray as xr
from fake_studies import Fakes, FirstConfig
from typer.testing import CliRunner

from largeprompt.cli.app import app
from largeprompt.runs import store
from largeprompt.runs.store import Run
from largeprompt.studies import registry

# a shell that starts the tests in the background makes them deaf to Ctrl-C, and their children too
LISTEN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"


def command(*words):
    return CliRunner().invoke(app, list(map(str, words)))


@pytest.fixture
def fakes(monkeypatch):
    return Fakes().install(monkeypatch)


def test_run_writes_all_there_is(tmp_path, fakes):
    result = command("run", "first", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert result.output == f"first: wrote {tmp_path / 'first'}: C9 holds, C9 fails (control)\n"  # one plain line in a pipe
    run = Run.open(tmp_path / "first")
    assert run.intact
    assert run.dataset.identical(fakes.studies["first"].run(FirstConfig()))
    assert [(figure.name, figure.caption) for figure in run.figures] == [("line", "A line.")]
    assert run.figures[0].png.read_bytes().startswith(b"\x89PNG")
    assert run.figures[0].pdf.read_bytes().startswith(b"%PDF")
    assert run.rerun == f"largeprompt run first --out {tmp_path}"
    assert run.provenance["workers"] == min(os.cpu_count(), 8)
    assert {path.name for path in tmp_path.iterdir()} == {"first"}
    assert {path.name for path in run.folder.iterdir()} == {
        "config.json", "cells", "dataset.nc", "verdicts.json", "figures", "provenance.json", "log.txt",
    }  # fmt: skip
    xr.load_dataset(run.folder / "dataset.nc", engine="h5netcdf")  # any reader of netCDF will do


def test_complete_run_is_not_computed_again_unless_asked(tmp_path, fakes):
    command("run", "first", "--out", tmp_path)
    result = command("run", "first", "--out", tmp_path)
    assert result.exit_code == 0
    assert "already complete" in result.output
    assert "--fresh" in result.output
    assert "C9 holds" in result.output
    assert len(fakes.calls) == 3
    assert "already" not in command("run", "first", "--out", tmp_path, "--fresh").output
    assert len(fakes.calls) == 6


@pytest.mark.parametrize("damaged", ["dataset.nc", "provenance.json", "verdicts.json", "figures/line.png"])
def test_damaged_result_is_made_again_from_the_cells(tmp_path, fakes, damaged):
    command("run", "first", "--out", tmp_path)
    (tmp_path / "first" / damaged).unlink()
    if not damaged.endswith("png"):
        (tmp_path / "first" / damaged).write_bytes(b"{")
    result = command("run", "first", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "3 of 3 cells are stored already" in result.output
    assert len(fakes.calls) == 3
    assert Run.open(tmp_path / "first").intact


def test_settings_make_another_run_in_another_folder(tmp_path, fakes):
    for words in [[], ["--quick"], ["--set", "sizes=8,9", "--set", "scale=2"], ["--seed", "3"], ["--quick", "--seed", "3"]]:
        result = command("run", "first", "--out", tmp_path, *words)
        assert result.exit_code == 0, result.output
    runs = {run.folder.name: run for run in store.find_runs(tmp_path)}
    assert len(runs) == 5
    assert {"first", "first-quick"} < set(runs)
    reruns = {run.rerun for run in runs.values()}
    assert f"largeprompt run first --set sizes=8,9 --set scale=2.0 --out {tmp_path}" in reruns
    for name, run in runs.items():  # each tells how to make it again
        result = command(*shlex.split(run.rerun)[1:], "--out", tmp_path)
        assert f"already complete in {tmp_path / name}:" in result.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["frist"], ["study: got 'frist'", "first, second", "Did you mean 'first'?"]),
        (["first", "--set", "sizes"], ["--set: got 'sizes'", "key=value"]),
        (["first", "--set", "size=3"], ["--set: got 'size=3'", "Did you mean sizes?"]),
        (["first", "--set", "scale=large"], ["--set scale: got 'large'", "number"]),
        (["second", "--seed", "3"], ["--seed: got 3", "no seed for second"]),
        (["first", "--workers", "0"], ["--workers"]),
        (["first", "--workers", "two"], ["--workers"]),
        (["first", "--seed", "x"], ["--seed"]),
        (["first", "--fast"], ["--fast"]),
        ([], ["Missing argument"]),
    ],
)
def test_what_was_typed_wrongly(tmp_path, fakes, words, told):
    result = command("run", *words, "--out", tmp_path / "runs")
    assert result.exit_code == 2
    for text in told:
        assert text in result.output
    assert "Traceback" not in result.output
    assert not (tmp_path / "runs").exists()


def test_failing_cell(tmp_path, fakes):
    fakes.raising[2] = ZeroDivisionError("by zero")
    result = command("run", "first", "--out", tmp_path)
    assert result.exit_code == 1
    assert "error: first: cell 'size: 2' failed (ZeroDivisionError: by zero). 2 of 3 cells are stored and kept" in result.output
    assert "Traceback" not in result.output
    fakes.raising.clear()
    fakes.calls.clear()
    result = command("run", "first", "--out", tmp_path)
    assert result.exit_code == 0
    assert "2 of 3 cells are stored already" in result.output
    assert fakes.calls == [2]


@pytest.mark.parametrize("reason", [errno.EACCES, errno.EROFS, errno.ENOSPC])
@pytest.mark.parametrize("moment", ["config.json", ".nc", "dataset.nc", "verdicts.json", "provenance.json"])
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
    assert ("finished cells are kept. Free some space" if full else "--out: cannot write to") in result.output
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
    assert "interrupted: finished cells are kept. The same command goes on where this stopped." in result.output
    assert Run.open(tmp_path / "first").finished_cells == 2
    assert "without --fresh" in command("run", "first", "--out", tmp_path, "--workers", "1", "--fresh").output


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals of POSIX")
def test_real_interrupt_of_real_processes(tmp_path):
    """Ctrl-C reaches the whole group, twice: one sentence, exit 130, and no process stays."""
    words = ["run", "endpoint", "--out", str(tmp_path), "--workers", "2"]
    process = subprocess.Popen(
        [sys.executable, "-c", f"{LISTEN}; from largeprompt.cli.app import app; app()", *words],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for _ in range(600):
            if (tmp_path / "endpoint" / "log.txt").exists():
                break
            time.sleep(0.1)
        time.sleep(1.0)
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.2)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)  # impatience changes nothing
        _, told = process.communicate(timeout=40)  # ends with the last process that holds the pipe
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130, told
    assert told == "interrupted: finished cells are kept. The same command goes on where this stopped.\n"
    assert Run.open(tmp_path / "endpoint").state == "partial"


def test_real_study_in_processes(tmp_path):
    """A real study from the command to the figures; one worker and two write the same bytes."""
    files = []
    for workers in (1, 2):
        out = tmp_path / str(workers)
        result = command("run", "sharpness", "--set", "points=6", "--set", "tilts=1", "--out", out, "--workers", workers)
        assert result.exit_code == 0, result.output
        (run,) = store.find_runs(out)
        assert run.intact
        assert run.figures
        assert run.provenance["workers"] == workers
        files.append((run.folder / "dataset.nc").read_bytes())
    assert files[0] == files[1]


def test_list_of_runs(tmp_path, fakes):
    assert "no runs in" in command("runs", "--out", tmp_path / "nothing").output
    command("run", "first", "--out", tmp_path)
    fakes.raising[5] = ValueError("no")
    command("run", "second", "--out", tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    result = command("runs", "--out", tmp_path)
    assert result.exit_code == 0
    lines = [line.split("\t") for line in result.stdout.splitlines()]
    assert lines[0] == ["run", "study", "state", "cells", "finished", "seconds", "verdicts"]
    assert lines[1][:4] == [str(tmp_path / "first"), "first", "complete", "3/3"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", lines[1][4])
    assert lines[1][6] == "1 holds, 1 fails (control)"
    assert lines[2] == [str(tmp_path / "second"), "second", "partial", "1/2", "-", "-", "-"]
    assert "left out" in result.stderr
    found = json.loads(command("runs", "--out", tmp_path, "--json").stdout)
    assert [row["state"] for row in found] == ["complete", "partial"]
    assert found[0]["verdicts"] == {"holds": 1, "fails (control)": 1}
    assert (found[1]["cells_done"], found[1]["cells"], found[1]["seconds"]) == (1, 2, None)


def test_terminal_shows_a_table_and_the_numbers(tmp_path, fakes, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    result = command("run", "first", "--out", tmp_path)
    assert "C9 holds. Is it? 1." in result.output
    assert "3/3" in result.output
    assert "─" in command("runs", "--out", tmp_path).output


@pytest.mark.parametrize("name", ["run", "runs", "reproduce", "report"])
def test_help_shows_an_example(name):
    result = command(name, "--help")
    assert result.exit_code == 0
    assert f"Example: largeprompt {name}" in result.output


def test_shell_completes_names_of_studies():
    environment = {"_LARGEPROMPT_COMPLETE": "complete_bash", "COMP_WORDS": "largeprompt run dr", "COMP_CWORD": "2"}
    result = CliRunner().invoke(app, [], env=environment, prog_name="largeprompt")
    assert result.stdout.split() == ["drift"]
    assert "--install-completion" in command("--help").output


def test_help_names_every_study():
    text = " ".join(CliRunner().invoke(app, ["run", "--help"]).output.split())
    assert all(name in text for name in registry.names())


def test_interrupt_while_the_command_loads():
    """Ctrl-C before there is anything to stop: one word and exit 130, no traceback."""
    code = """
import sys
class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == "largeprompt.cli.app":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
from largeprompt.__main__ import main
main()
"""
    result = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (130, "interrupted\n")
