"""``largeprompt reproduce`` as its user types it."""

import errno
import os
import re
from pathlib import Path

import pytest
from fake_studies import Fakes
from typer.testing import CliRunner

from largeprompt.cli.app import app
from largeprompt.report import page
from largeprompt.runs.files import RunError
from largeprompt.runs.store import Run
from largeprompt.studies import registry


def reproduce(out, *words):
    return CliRunner().invoke(app, ["reproduce", "--out", str(out), *words])


@pytest.fixture
def fakes(monkeypatch):
    return Fakes().install(monkeypatch)


@pytest.fixture
def reports(monkeypatch):
    """Runs that reports were asked about, instead of pages."""
    asked = []

    def write(runs, target):
        asked.append([(run.folder.name, run.state) for run in runs])
        target.write_text("page")
        return target

    monkeypatch.setattr(page, "write_report", write)
    return asked


def test_every_study_and_the_report(tmp_path, fakes, reports):
    result = reproduce(tmp_path)
    assert result.exit_code == 0, result.output
    assert len(fakes.calls) == 5
    begun, *said, ended = result.output.splitlines()
    assert begun == f"Open {tmp_path / 'report.html'}: it grows with every study."
    assert ended == f"Wrote {tmp_path / 'report.html'}"
    assert set(said) == {
        line
        for name, n in (("first", 3), ("second", 2))
        for line in (f"{name}: It is, {n} times.", f"  Stored in {tmp_path / name}")
    }
    again = reproduce(tmp_path)
    assert again.output.count("--fresh computes it again") == 2
    assert len(fakes.calls) == 5


def test_the_report_grows_with_every_study(tmp_path, fakes, reports):
    """It is there from the beginning, and written again when a study ends."""
    reproduce(tmp_path, "--workers", "1")
    finished = [sum(state == "complete" for _, state in runs) for runs in reports]
    assert finished == [0, 1, 2, 2]
    assert {tuple(name for name, _ in runs) for runs in reports} == {("first", "second")}


def test_quick(tmp_path, fakes, reports):
    assert reproduce(tmp_path, "--quick").exit_code == 0
    assert fakes.calls == [7, 7]
    assert reports[-1] == [("first-quick", "complete"), ("second-quick", "complete")]


def test_help_says_how_many_minutes_quick_takes():
    """By the seconds that each study was measured to take, on two cores; the documentation says the
    same.
    """
    text = " ".join(
        CliRunner().invoke(app, ["reproduce", "--help"], env={"COLUMNS": "200"}).output.split()
    )
    quick, full = (
        sum(each[kind] for each in registry.SECONDS.values()) / 2 / 60 for kind in (0, 1)
    )
    minutes, all_minutes = map(
        int,
        re.search(r"Smaller settings: (\d+) minutes? on 2 cores instead of (\d+)", text).groups(),
    )
    assert quick <= minutes < quick + 1.5
    assert full <= all_minutes < full + 1.5
    words = "1 minute" if minutes == 1 else f"{minutes} minutes"
    assert f"{words} on 2 cores" in (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text(
        "utf-8"
    )


def test_real_report(tmp_path, fakes):
    result = reproduce(tmp_path, "--quick")
    assert result.exit_code == 0, result.output
    assert "A line." in (tmp_path / "report-quick.html").read_text()
    assert not (tmp_path / "report.html").exists()  # that is the full one


def test_study_that_fails_leaves_the_others(tmp_path, fakes, reports):
    fakes.raising[2] = ValueError("no number")
    result = reproduce(tmp_path)
    assert result.exit_code == 1
    assert result.output.splitlines()[-1].startswith(
        "error: first: cell 'size: 2' failed (ValueError: no number)"
    )
    assert reports[-1] == [("first", "partial"), ("second", "complete")]


def test_study_that_cannot_be_loaded_leaves_the_others(tmp_path, fakes, reports, monkeypatch):
    monkeypatch.setattr(registry, "OURS", ("first", "absent", "second"))
    result = reproduce(tmp_path)
    assert result.exit_code == 1
    assert "error: absent: cannot be begun (InvalidArgumentError" in result.output
    assert [name for name, _ in reports[0]] == ["first", "second"]


def test_stopped_and_resumed(tmp_path, fakes, reports):
    fakes.raising[4] = KeyboardInterrupt()
    result = reproduce(tmp_path, "--workers", "1")
    assert result.exit_code == 130
    assert "The same command resumes" in result.output
    # what there is can be read
    assert reports[-1] == [("first", "complete"), ("second", "partial")]
    assert Run.open(tmp_path / "first").state == "complete"
    fakes.raising.clear()
    fakes.calls.clear()
    assert reproduce(tmp_path).exit_code == 0
    assert set(fakes.calls) <= {4, 5}


def test_full_disk(tmp_path, fakes, reports, monkeypatch):
    replace = os.replace

    def full(source, target):
        if "size-2" in str(target):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    result = reproduce(tmp_path, "--workers", "1")
    assert result.exit_code == 1
    assert "no space left for" in result.output
    assert result.output.count("error:") == 1
    assert Run.open(tmp_path / "first").finished_cells >= 1


@pytest.mark.parametrize(
    "error", [OSError(errno.EACCES, "Permission denied"), RunError("a run cannot be read")]
)
def test_report_that_cannot_be_written(tmp_path, fakes, monkeypatch, error):
    def refuse(runs, target):
        raise error

    monkeypatch.setattr(page, "write_report", refuse)
    fakes.raising[2] = ValueError("no number")
    result = reproduce(tmp_path)
    assert result.exit_code == 1
    assert result.output.count("error:") == 2  # the study's and the report's
    assert "Traceback" not in result.output


def test_unwritable_folder_is_one_clear_sentence(tmp_path):
    (tmp_path / "file").write_text("in the way")
    result = reproduce(tmp_path / "file" / "runs")
    assert result.exit_code == 1
    assert "--out: cannot write to" in result.output
    assert "Traceback" not in result.output
