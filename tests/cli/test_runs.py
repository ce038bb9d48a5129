"""``largeprompt runs`` as its user types it."""

import json
import re

import pytest
from fake_studies import Fakes
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
    assert lines[0] == ["run", "study", "state", "cells", "finished", "elapsed", "verdicts"]
    assert lines[1][:4] == [str(tmp_path / "first"), "first", "complete", "3/3"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", lines[1][4])
    assert lines[1][6] == "1 holds; 1 control fails, as it must"
    assert lines[2] == [str(tmp_path / "second"), "second", "partial", "1/2", "-", "-", "-"]
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
        ({"fails": 1, "undecided": 2, "holds (control)": 1}, "1 fails, 2 undecided; 1 control holds, but must fail"),
        ({"fails (control)": 1}, "1 control fails, as it must"),
        ({}, "-"),
    ],
)
def test_verdicts_are_counted_in_words(verdicts, words):
    assert _counts(verdicts) == words
