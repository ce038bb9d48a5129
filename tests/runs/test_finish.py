"""A run whose cells are there is joined, judged, drawn and stored, with checksums of all of it."""

import dataclasses
import time

from toy_studies import STUDY, SmallConfig

from largeprompt.runs.files import sha256
from largeprompt.runs.finish import Job, finish
from largeprompt.runs.netcdf import encode
from largeprompt.runs.store import Run


def test_all_that_a_run_writes_has_a_checksum(tmp_path):
    config = SmallConfig()
    study = dataclasses.replace(
        STUDY, attach=lambda data: {"table.csv": f"{data.sizes['size']} sizes".encode()}
    )
    run = Run.create(tmp_path / "small", study, config, quick=False, rerun="")
    for name, cell in study.cells(config).items():
        run.write_cell(name, encode(cell.compute(config)), 1.0)
    found = finish(Job(run, study, config, ("size: 1",)), workers=4, started=time.time())
    assert found.error is None
    assert list(found.verdicts) == run.verdicts == study.judge(run.dataset)
    made = run.provenance
    assert (made["resumed_cells"], made["workers"], list(made["cells"].values())) == (
        2,
        4,
        [1.0, 1.0, 1.0],
    )
    written = {"config.json", "dataset.nc", "verdicts.json", "table.csv"}
    assert set(run.checksums) == written | {
        f"figures/{name}" for name in ("one.png", "one.pdf", "captions.json")
    }
    assert all(
        sha256((run.folder / name).read_bytes()) == checksum
        for name, checksum in run.checksums.items()
    )
    assert run.read("table.csv") == b"3 sizes"
    assert run.intact
    run.drop_results()
    assert sorted(path.name for path in run.folder.iterdir()) == [
        ".lock",
        "cells",
        "config.json",
        "figures",
        "log.txt",
    ]


def test_a_cell_that_is_not_there_is_told(tmp_path):
    run = Run.create(tmp_path / "small", STUDY, SmallConfig(), quick=False, rerun="")
    found = finish(Job(run, STUDY, SmallConfig(), ()), started=time.time())
    assert (
        "all cells are stored, but not the result (RunError: cannot read a file of the run"
        in str(found.error)
    )
    assert run.state == "partial"
