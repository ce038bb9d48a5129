"""``largeprompt runs`` as its user types it."""

import json
import re

import pytest
from fake_studies import Fakes
from run_folders import make_run, verdict
from typer.testing import CliRunner

from largeprompt.cli.app import app
from largeprompt.cli.runs import _counts


def command(*words):
    return CliRunner().invoke(app, list(map(str, words)))


@pytest.fixture
def fakes(monkeypatch):
    return Fakes().install(monkeypatch)


def test_list_of_runs(tmp_path, fakes):
    assert "no runs in" in command("runs", tmp_path / "nothing").output
    command("run", "first", "--out", tmp_path)
    fakes.raising[5] = ValueError("no")
    command("run", "second", "--out", tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    result = command("runs", tmp_path)
    assert result.exit_code == 0
    lines = [line.split("\t") for line in result.stdout.splitlines()]
    assert lines[0] == ["run", "state", "cells", "finished", "elapsed", "verdicts"]
    assert lines[1][:3] == [str(tmp_path / "first"), "complete", "3/3"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", lines[1][3])
    assert lines[1][5] == "1 holds; 1 control fails, as it must"
    assert lines[2] == [str(tmp_path / "second"), "partial", "1/2", "-", "-", "-"]
    assert "left out" in result.stderr
    found = json.loads(command("runs", tmp_path, "--json").stdout)
    assert [row["state"] for row in found] == ["complete", "partial"]
    assert found[0]["verdicts"] == {"holds": 1, "fails (control)": 1}
    assert (found[1]["cells_done"], found[1]["cells"], found[1]["seconds"]) == (1, 2, None)


@pytest.mark.parametrize(
    ("verdicts", "words"),
    [
        (
            {"holds": 4, "holds in part": 3, "fails": 4, "fails (control)": 2},
            "4 hold, 3 hold in part, 4 fail; 2 controls fail, as they must",
        ),
        (
            {"fails": 1, "undecided": 2, "holds (control)": 1},
            "1 fails, 2 undecided; 1 control holds, but must fail",
        ),
        ({"fails (control)": 1}, "1 control fails, as it must"),
        ({}, "-"),
    ],
)
def test_verdicts_are_counted_in_words(verdicts, words):
    assert _counts(verdicts) == words


EVIL = "\x1b]0;owned\x07\x1b[2J"


@pytest.mark.parametrize("terminal", [False, True])
def test_names_cannot_command_the_terminal(tmp_path, monkeypatch, terminal):
    """Escapes in the names of folders and of what they hold, and in what is said of a folder that
    cannot be read.
    """
    make_run(tmp_path / f"a{EVIL}", [verdict()], study=f"study {EVIL}", rerun=EVIL)
    (tmp_path / f"b{EVIL}").mkdir()
    (tmp_path / f"b{EVIL}" / "config.json").write_text("{")
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", "300")
    for words in (["runs", tmp_path], ["report", tmp_path], ["runs", tmp_path, "--json"]):
        result = command(*words)
        assert result.exit_code == 0, result.output
        assert "\x07" not in result.output
        assert "\x1b]" not in result.output
        assert "\x1b[2J" not in result.output
        if words[0] == "runs" and words[-1] != "--json":
            assert "a�]0;owned��[2J" in result.stdout
    assert json.loads(command("runs", tmp_path, "--json").stdout)[0]["study"] == f"study {EVIL}"


def test_damaged_files_are_named(tmp_path):
    """As the report does."""
    run = make_run(tmp_path / "a", [verdict()])
    (run.folder / "figures" / "curve.png").write_bytes(b"something else")
    (line,) = command("runs", tmp_path).stdout.splitlines()[1:]
    assert line.split("\t")[1] == "damaged (figures/curve.png)"
    (row,) = json.loads(command("runs", tmp_path, "--json").stdout)
    assert (row["state"], row["damaged"]) == ("damaged", ["figures/curve.png"])


def test_what_was_typed_cannot_command_the_terminal():
    assert "\x1b" not in command("runs", EVIL).output


def test_names_are_never_cut(tmp_path, monkeypatch):
    """Two long names that differ at their ends are told apart in a narrow terminal."""
    names = [f"convergence-{'score_variances=0.5,2,6,' * 2}dim={dim}" for dim in (20, 21)]
    for name in names:
        make_run(tmp_path / name, [verdict()])
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    lines = command("runs", tmp_path).output.splitlines()
    column = "".join(line[: line.find("  ")] if "  " in line else line for line in lines)
    assert all(name in column for name in names)
