"""``largeprompt run`` as its user types it."""

import os
import shlex

import pytest
import xarray as xr
from fake_studies import Fakes, FirstConfig
from typer.testing import CliRunner

from largeprompt.cli.app import app
from largeprompt.runs import store
from largeprompt.runs.lock import locked
from largeprompt.runs.store import Run


def command(*words):
    return CliRunner().invoke(app, list(map(str, words)))


@pytest.fixture
def fakes(monkeypatch):
    return Fakes().install(monkeypatch)


def test_run_writes_all_there_is(tmp_path, fakes):
    result = command("run", "first", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    # one plain line in a pipe
    assert result.output == f"first: It is, 3 times. Wrote {tmp_path / 'first'}\n"
    run = Run.open(tmp_path / "first")
    assert run.intact
    assert run.dataset.identical(fakes.studies["first"].run(FirstConfig()))
    assert [(figure.name, figure.caption) for figure in run.figures] == [("line", "A line.")]
    assert run.figures[0].read("png").startswith(b"\x89PNG")
    assert run.figures[0].read("pdf").startswith(b"%PDF")
    assert run.rerun == f"largeprompt run first --out {tmp_path}"
    assert run.provenance["workers"] == min(os.cpu_count(), 8)
    assert {path.name for path in tmp_path.iterdir()} == {"first"}
    assert {path.name for path in run.folder.iterdir()} == {
        "config.json", "cells", "dataset.nc", "verdicts.json", "figures", "provenance.json", "log.txt", ".lock",
    }  # fmt: skip
    xr.load_dataset(run.folder / "dataset.nc", engine="h5netcdf")  # any reader of netCDF will do


def test_complete_run_is_not_computed_again_unless_asked(tmp_path, fakes):
    command("run", "first", "--out", tmp_path)
    result = command("run", "first", "--out", tmp_path)
    assert result.exit_code == 0
    assert "Already complete" in result.output
    assert "--fresh" in result.output
    assert "first: It is, 3 times." in result.output
    assert len(fakes.calls) == 3
    assert "Already" not in command("run", "first", "--out", tmp_path, "--fresh").output
    assert len(fakes.calls) == 6


def test_drafts_in_a_complete_run_are_removed_unless_it_is_computed_now(tmp_path, fakes):
    command("run", "first", "--out", tmp_path)
    draft = tmp_path / "first" / "cells" / ".a.nc.1-0.part"
    draft.touch()
    with locked(tmp_path / "first"):
        assert command("run", "first", "--out", tmp_path).exit_code == 0
    assert draft.exists()
    assert "Already complete" in command("run", "first", "--out", tmp_path).output
    assert not draft.exists()
    assert Run.open(tmp_path / "first").intact


@pytest.mark.parametrize(
    "damaged", ["dataset.nc", "provenance.json", "verdicts.json", "figures/line.png"]
)
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
    for words in [
        [],
        ["--quick"],
        ["--set", "sizes=8,9", "--set", "scale=2"],
        ["--seed", "3"],
        ["--quick", "--seed", "3"],
    ]:
        result = command("run", "first", "--out", tmp_path, *words)
        assert result.exit_code == 0, result.output
    runs = {run.folder.name: run for run in store.find_runs(tmp_path)}
    assert len(runs) == 5
    assert {"first", "first-quick"} < set(runs)
    reruns = {run.rerun for run in runs.values()}
    assert f"largeprompt run first --set sizes=8,9 --set scale=2.0 --out {tmp_path}" in reruns
    for name, run in runs.items():  # each says how to make it again
        result = command(*shlex.split(run.rerun)[1:], "--out", tmp_path)
        assert f"Already complete in {tmp_path / name};" in result.output


@pytest.mark.parametrize(
    ("words", "expected"),
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
        (["first", "--set", "seed=-1"], ["--set seed: got '-1'"]),
        (["first", "--shard", "0/2"], ["--shard: got '0/2'", "I from 1 to N"]),
        (["first", "--shard", "3/2"], ["--shard: got '3/2'"]),
        (["first", "--shard", "half"], ["--shard: got 'half'"]),
        (["first", "--shard", "1/2", "--fresh"], ["--fresh: got it together with --shard 1/2"]),
        (["first", "--cell-limit", "0"], ["--cell-limit"]),
        (
            ["first", "--cell-limit", "1e7"],
            ["--cell-limit: got 10000000.0", "seconds from 0.1 to 1e6"],
        ),
        (["first", "--cell-limit", "nan"], ["--cell-limit"]),
        ([], ["Missing argument"]),
    ],
)
def test_what_was_typed_wrongly(tmp_path, fakes, words, expected):
    result = command("run", *words, "--out", tmp_path / "runs")
    assert result.exit_code == 2
    for text in expected:
        assert text in result.output
    assert "Traceback" not in result.output
    assert not (tmp_path / "runs").exists()


def test_real_study_in_processes(tmp_path):
    """A real study from the command to the figures; one worker and two write the same bytes."""
    files = []
    for workers in (1, 2):
        out = tmp_path / str(workers)
        result = command(
            "run",
            "sharpness",
            "--set",
            "points=6",
            "--set",
            "tilts=1",
            "--out",
            out,
            "--workers",
            workers,
        )
        assert result.exit_code == 0, result.output
        (run,) = store.find_runs(out)
        assert run.intact
        assert run.figures
        assert run.provenance["workers"] == workers
        files.append((run.folder / "dataset.nc").read_bytes())
    assert files[0] == files[1]


@pytest.mark.parametrize("name", ["remote", "dask:nowhere", "no.such:thing"])
def test_an_executor_that_is_not_there(tmp_path, fakes, name):
    result = command("run", "first", "--out", tmp_path, "--executor", name)
    assert result.exit_code == 2
    assert f"--executor: got {name!r}" in result.output
    assert "Traceback" not in result.output


def test_shards_and_finish_are_the_run_undisturbed(tmp_path, fakes):
    """As in an array job: each shard computes its cells, says what to do next, and `runs --finish`
    joins them.
    """
    command("run", "first", "--out", tmp_path / "whole")
    fakes.calls.clear()
    first = command("run", "first", "--out", tmp_path / "parts", "--shard", "1/2")
    assert first.exit_code == 0, first.output
    assert (
        "shard 1/2 is done: 2 of 3 cells are stored, the other shards compute the rest."
        in first.output
    )
    assert f"largeprompt runs {tmp_path / 'parts'} --finish" in first.output
    early = command("runs", tmp_path / "parts", "--finish")
    assert "left out" in early.stderr
    assert "lacks 1 of 3 cells" in early.stderr
    fakes.raising[2] = ValueError("no number")
    failed = command("run", "first", "--out", tmp_path / "parts", "--shard", "2/2")
    assert failed.exit_code == 1
    assert "error: first: cell 'size: 2' failed (ValueError: no number)." in failed.output
    fakes.raising.clear()
    assert (
        "all are there"
        in command("run", "first", "--out", tmp_path / "parts", "--shard", "2/2").output
    )
    assert sorted(fakes.calls) == [1, 2, 2, 3]
    ended = command("runs", tmp_path / "parts", "--finish")
    assert ended.exit_code == 0, ended.output
    assert "first: It is, 3 times. Wrote" in ended.output
    whole, parts = (tmp_path / name / "first" / "dataset.nc" for name in ("whole", "parts"))
    assert parts.read_bytes() == whole.read_bytes()
    assert Run.open(parts.parent).intact
