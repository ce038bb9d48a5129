"""``largeprompt run`` as its user types it."""

import os
import shlex

import pytest
import xarray as xr
from fake_studies import Fakes, FirstConfig
from typer.testing import CliRunner

from largeprompt.cli.app import app
from largeprompt.runs import store
from largeprompt.runs.store import Run


def command(*words):
    return CliRunner().invoke(app, list(map(str, words)))


@pytest.fixture
def fakes(monkeypatch):
    return Fakes().install(monkeypatch)


def test_run_writes_all_there_is(tmp_path, fakes):
    result = command("run", "first", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    folder = tmp_path / "first"
    assert result.output.splitlines() == [
        "first: It is, 3 times.",
        f"  Dataset: {folder / 'dataset.nc'}",
        f"  Figure: {folder / 'figures' / 'line'}.png",
    ]
    run = Run.open(tmp_path / "first")
    assert run.intact
    assert run.dataset.identical(fakes.studies["first"].run(FirstConfig()))
    assert [(figure.name, figure.caption) for figure in run.figures] == [("line", "A line.")]
    assert run.figures[0].read("png").startswith(b"\x89PNG")
    assert run.figures[0].read("pdf").startswith(b"%PDF")
    assert run.rerun == f"largeprompt run first --out {tmp_path}"
    assert run.provenance["workers"] == min(os.cpu_count(), 8)
    assert {path.name for path in tmp_path.iterdir()} == {"first"}
    results = {"dataset.nc", "verdicts.json", "figures", "provenance.json"}
    there = {path.name for path in run.folder.iterdir()}
    assert there == {"config.json", "cells", "log.txt", ".lock"} | results
    xr.load_dataset(run.folder / "dataset.nc", engine="h5netcdf")  # any reader of netCDF will do


def test_complete_run_is_not_computed_again_unless_asked(tmp_path, fakes):
    command("run", "first", "--out", tmp_path)
    result = command("run", "first", "--out", tmp_path)
    assert result.exit_code == 0
    assert f"Stored in {tmp_path / 'first'}; --fresh computes it again." in result.output
    assert "first: It is, 3 times." in result.output
    assert len(fakes.calls) == 3
    assert "Stored in" not in command("run", "first", "--out", tmp_path, "--fresh").output
    assert len(fakes.calls) == 6


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
    assert "3 of 3 cells are stored; resuming" in result.output
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
    assert set(runs) == {
        "first",
        "first-quick",
        "first-sizes=8,9-scale=2",
        "first-seed=3",
        "first-quick-seed=3",
    }
    reruns = {run.rerun for run in runs.values()}
    assert f"largeprompt run first --set sizes=8,9 --set scale=2 --out {tmp_path}" in reruns
    for name, run in runs.items():  # each says how to make it again
        result = command(*shlex.split(run.rerun)[1:], "--out", tmp_path)
        assert f"Stored in {tmp_path / name};" in result.output


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["frist"], ["study: got 'frist'", "first, second", "Did you mean 'first'?"]),
        (["first", "--set", "sizes"], ["--set: got 'sizes'", "key=value"]),
        (
            ["first", "--set", "size=3"],
            ["--set: got 'size=3'", "sizes", "`largeprompt studies first` lists them"],
        ),
        (["first", "--set", "scale=large"], ["--set scale: got 'large'", "number"]),
        (["second", "--seed", "3"], ["--seed: got 3", "no seed for second"]),
        (["first", "--workers", "0"], ["--workers"]),
        (["first", "--workers", "two"], ["--workers"]),
        (["first", "--seed", "x"], ["--seed"]),
        (["first", "--fast"], ["--fast"]),
        (["first", "--set", "seed=-1"], ["--set seed: got '-1'"]),
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


@pytest.mark.parametrize("name", ["remote", "dask:nowhere", "no.such:thing"])
def test_an_executor_that_is_not_there(tmp_path, fakes, name):
    result = command("run", "first", "--out", tmp_path, "--executor", name)
    assert result.exit_code == 2
    assert f"--executor: got {name!r}" in result.output
    assert "Traceback" not in result.output
