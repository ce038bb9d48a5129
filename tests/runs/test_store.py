"""The run folder: what is written is read back bit for bit, and what is stale or damaged is never
shown.
"""

import dataclasses
import errno
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import xarray as xr
from run_folders import rewrite
from toy_studies import STUDY, SmallConfig

from largeprompt.errors import LargePromptError
from largeprompt.runs import store
from largeprompt.runs.files import RunError, StorageError, read_sealed, sealed, to_json
from largeprompt.runs.judging import Claim, Verdict
from largeprompt.runs.netcdf import encode
from largeprompt.runs.store import Run, default_folder, find_runs


def create(folder, config=SmallConfig()):  # noqa: B008
    return Run.create(folder, STUDY, config, quick=False, rerun="largeprompt run small")


def complete(run, config=SmallConfig()):  # noqa: B008
    for cell in run.cells:
        run.write_cell(cell, encode(STUDY.cells(config)[cell].compute(config)), 0.5)
    data = STUDY.finish(config, {cell: run.read_cell(cell) for cell in run.cells})
    verdicts = to_json([dataclasses.asdict(each) for each in STUDY.judge(data)])
    pictures = {
        "figures/one.png": b"\x89PNG",
        "figures/one.pdf": b"%PDF",
        "figures/captions.json": to_json({"one": "With Σ."}),
    }
    run.write_results(
        {"dataset.nc": encode(data), "verdicts.json": verdicts} | pictures, {"finished": "now"}
    )


def test_what_is_written_is_read_back(tmp_path):
    run = create(tmp_path / "small")
    assert run.state == "partial"
    assert (run.verdicts, run.provenance, run.figures, run.finished_cells) == ([], {}, [], 0)
    complete(run)
    again = Run.open(tmp_path / "small")
    assert again == run
    assert again.state == "complete"
    assert again.intact
    assert again.finished_cells == 3
    assert (again.study, again.title, again.question, again.method) == (
        "small",
        "Small",
        "Is it small?",
        "By counting.",
    )
    assert again.config == {"scratch": "", "sizes": [1, 2, 3], "scale": 1.0, "seed": 0}
    assert again.claims == (Claim("C9", "Ninth", "There are numbers."),)
    assert again.verdicts[0] == Verdict("C9", "Are the numbers there?", "holds", "3 sizes.")
    (figure,) = again.figures
    assert (figure.name, figure.caption, figure.read("png"), figure.read("pdf")) == (
        "one",
        "With Σ.",
        b"\x89PNG",
        b"%PDF",
    )
    assert figure.has("pdf")
    assert not figure.has("C1.png")
    with pytest.raises(RunError, match="not among the results"):
        figure.read("C1.png")
    assert again.dataset.identical(STUDY.run(SmallConfig()))
    assert [found.folder.name for found in find_runs(tmp_path)] == ["small"]
    assert all(
        line[10] == "T" and line[19] == "Z"
        for line in (run.folder / "log.txt").read_text().splitlines()
    )


def test_every_kind_of_number_and_text_survives(tmp_path):
    run = create(tmp_path / "small")
    data = xr.Dataset(
        {
            "float": (("name", "length"), [[1 / 3, np.inf, -np.inf], [np.nan, 5e-324, -0.0]]),
            "int": ("name", np.array([2**62 + 1, -1])),
            "flag": ("name", [True, False]),
            "text": ("name", ["Σ⁻¹", ""]),
            "scalar": 1e308,
            "none": ("empty", np.zeros(0)),
        },
        {"name": ["identity", "condition 1e4"], "length": [1.0, 10.0, np.inf]},
        {"title": "t"},
    )
    run.write_cell("size: 1", encode(data), 1.0)
    read = run.read_cell("size: 1")
    assert read.identical(data)
    for name in data.variables:
        assert read[name].dtype == data[name].dtype
        assert read[name].values.tobytes() == data[name].values.tobytes()
    run.write_cell("size: 2", encode(read), 1.0)  # what was read can be written again
    assert run.read_cell("size: 2").identical(data)


def test_keys_depend_on_all_that_decides_the_numbers(tmp_path, monkeypatch):
    run = create(tmp_path / "a")
    files = {run.cell_file(cell).name for cell in run.cells}
    assert {name[:7] for name in files} == {"size-1-", "size-2-", "size-3-"}
    files |= {
        create(tmp_path / "b", SmallConfig(scale=2.0)).cell_file(cell).name for cell in run.cells
    }
    monkeypatch.setattr("largeprompt.__version__", "99")
    files |= {create(tmp_path / "c").cell_file(cell).name for cell in run.cells}
    assert len(files) == 9


def test_key_is_the_same_in_whatever_order_the_config_is(tmp_path):
    run = create(tmp_path / "a")
    path = run.folder / "config.json"
    described = read_sealed(path)
    described["config"] = dict(reversed(described["config"].items()))
    path.write_bytes(sealed(described))
    assert Run.open(run.folder).key("size: 1") == run.key("size: 1")


@pytest.mark.parametrize("change", ["config", "version"])
def test_results_of_another_config_or_version_are_dropped(tmp_path, monkeypatch, change):
    run = create(tmp_path / "small")
    complete(run)
    cells = set((run.folder / "cells").iterdir())
    if change == "version":
        monkeypatch.setattr("largeprompt.__version__", "99")
    other = create(run.folder, SmallConfig(scale=2.0) if change == "config" else SmallConfig())
    assert other.state == "partial"
    assert (other.verdicts, other.provenance, other.figures) == ([], {}, [])
    assert not list(other.folder.glob("figures/*"))
    assert not (other.folder / "dataset.nc").exists()
    assert other.missing() == other.cells
    assert set((run.folder / "cells").iterdir()) == cells


def test_same_config_keeps_everything(tmp_path):
    complete(create(tmp_path / "small"))
    assert create(tmp_path / "small").intact


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-100]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(
            path.read_bytes()[:500] + b"\xff" * 100 + path.read_bytes()[600:]
        ),
        lambda path: path.with_suffix(".json").write_text('{"key": '),
        lambda path: path.with_suffix(".json").write_text("[]"),
    ],
    ids=["truncated", "empty", "garbled", "record cut off", "record of something else"],
)
def test_damaged_cell_is_moved_aside(tmp_path, damage):
    run = create(tmp_path / "small")
    complete(run)
    path = run.cell_file("size: 2")
    damage(path)
    with pytest.raises(RunError):
        run.read_cell("size: 2")
    assert run.missing() == ("size: 2",)
    assert path.with_name(f"{path.name}.corrupt").exists()
    assert not path.exists()
    assert "cell 'size: 2' cannot be read" in (run.folder / "log.txt").read_text()
    assert run.finished_cells == 2


def test_cell_cut_off_before_its_record_is_not_finished(tmp_path):
    run = create(tmp_path / "small")
    complete(run)
    run.cell_file("size: 3").with_suffix(".json").unlink()
    assert run.missing() == ("size: 3",)


@pytest.mark.parametrize(
    "name",
    ["dataset.nc", "verdicts.json", "provenance.json", "figures/captions.json", "figures/one.png"],
)
def test_damaged_result_is_not_intact(tmp_path, name):
    run = create(tmp_path / "small")
    complete(run)
    if name.endswith("png"):
        (run.folder / name).unlink()
    else:
        (run.folder / name).write_bytes(b"{{")
    assert not run.intact


def test_every_bit_of_every_file_is_watched(tmp_path):
    """One bit, at three places of each file that a run stores: the run is not intact, and no cell
    or result is believed.
    """
    run = create(tmp_path / "small")
    complete(run)
    random = np.random.default_rng(17)
    for path in sorted(
        each
        for each in run.folder.rglob("*")
        if each.is_file() and each.name not in ("log.txt", ".lock")
    ):
        whole = path.read_bytes()
        for place in (0, len(whole) - 1, random.integers(len(whole))):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << random.integers(8)
            path.write_bytes(flipped)
            if path.parent.name == "cells":
                cell = next(cell for cell in run.cells if run.cell_file(cell).stem == path.stem)
                with pytest.raises(RunError):
                    run.read_cell(cell)
            elif path.name == "config.json":
                with pytest.raises(RunError):
                    Run.open(run.folder)
            else:
                assert not run.intact, (path, place)
                if path.suffix == ".json" or path.name == "dataset.nc":
                    with pytest.raises(RunError):
                        _ = run.verdicts, run.figures, run.dataset
        path.write_bytes(whole)
    assert run.intact


@pytest.mark.parametrize(
    "names",
    [
        ["dataset.nc"],
        ["verdicts.json"],
        ["config.json"],
        ["dataset.nc", "verdicts.json", "provenance.json"],
    ],
)
def test_files_of_another_run_are_refused(tmp_path, names):
    run, other = create(tmp_path / "a"), create(tmp_path / "b", SmallConfig(scale=2.0))
    complete(run)
    complete(other, SmallConfig(scale=2.0))
    for name in names:
        (run.folder / name).write_bytes((other.folder / name).read_bytes())
    if names == ["verdicts.json"]:  # which says the same for both
        assert run.intact
    elif names == ["dataset.nc"]:
        assert not run.intact
    else:
        with pytest.raises(RunError, match="checksum"):
            Run.open(run.folder)


def test_a_cell_of_another_run_is_moved_aside(tmp_path):
    run, other = create(tmp_path / "a"), create(tmp_path / "b", SmallConfig(scale=2.0))
    complete(run)
    complete(other, SmallConfig(scale=2.0))
    for ending in (".nc", ".json"):
        theirs = other.cell_file("size: 2").with_suffix(ending)
        theirs.replace(run.cell_file("size: 2").with_suffix(ending))
    assert run.missing() == ("size: 2",)


@pytest.mark.parametrize("kind", ["pipe", "device", "huge"])
@pytest.mark.parametrize(
    "name", ["config.json", "verdicts.json", "provenance.json", "dataset.nc", "figures/one.png"]
)
def test_pipes_devices_and_huge_files_are_not_read(tmp_path, kind, name):
    run = create(tmp_path / "small")
    complete(run)
    path = run.folder / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "huge":
        with path.open("wb") as file:
            file.truncate(2**33)
    else:
        path.symlink_to("/dev/zero")
    assert find_runs(tmp_path) == ([run] if name in ("dataset.nc", "figures/one.png") else [])
    assert not run.intact


def test_two_beginners_of_one_run_agree(tmp_path):
    """As the shards of an array job that start at once."""
    with ThreadPoolExecutor(8) as threads:
        runs = list(threads.map(create, [tmp_path / "small"] * 8))
    assert all(run == runs[0] for run in runs)
    assert (runs[0].folder / "log.txt").read_text().count("run of small") == 1


def test_drafts_of_killed_writers_are_removed(tmp_path):
    run = create(tmp_path / "small")
    for folder in (run.folder, run.folder / "cells"):
        (folder / ".dataset.nc.1-ab.part").write_bytes(b"half")
    (run.folder / "mine.part").write_bytes(b"of the user's own")
    run.drop_drafts()
    assert [path.name for path in run.folder.rglob("*.part")] == ["mine.part"]


@pytest.mark.parametrize(
    "content",
    ["", "{}", "[]", "null", '{"study": 3}', "\xff", '{"model_type": "gpt2", "vocab_size": 50257}'],
    ids=range(7),
)
def test_folder_that_is_not_a_run(tmp_path, content):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(content, encoding="latin-1")
    with pytest.raises(RunError, match="not a run folder"):
        Run.open(tmp_path / "model")
    assert find_runs(tmp_path) == []


def test_missing_folder(tmp_path):
    with pytest.raises(LargePromptError, match=r"not a run folder.*No such file"):
        Run.open(tmp_path / "nothing")
    assert find_runs(tmp_path / "nothing") == []


@pytest.mark.parametrize("where", ["replace", "fsync"])
def test_failed_write_leaves_the_old_file_and_no_draft(tmp_path, monkeypatch, where):
    run = create(tmp_path / "small")
    run.write("a.txt", b"old")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, where, full)
        with pytest.raises(
            StorageError, match=r"no space left for .*small .*finished cells are kept"
        ):
            run.write("a.txt", b"new")
    assert (run.folder / "a.txt").read_bytes() == b"old"
    assert [path.name for path in run.folder.glob(".*")] == [".lock"]


def test_file_in_the_way(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match=r"--out: cannot write to .*file.*choose a folder"):
        create(tmp_path / "file" / "small")
    assert (tmp_path / "file").read_text() == "in the way"


def test_clear_removes_own_cells_only(tmp_path):
    run = create(tmp_path / "small")
    complete(run)
    other = create(run.folder, SmallConfig(scale=2.0))
    complete(other, SmallConfig(scale=2.0))
    other.clear()
    assert other.finished_cells == 0
    assert other.state == "partial"
    assert run.finished_cells == 3


def test_default_folders(tmp_path):
    """The changed settings, where they make a short plain name; a hash of all where not."""
    quick = SmallConfig(sizes=(1,))
    names = [
        default_folder(tmp_path, STUDY, config, is_quick).name
        for config, is_quick in [
            (SmallConfig(), False),
            (quick, True),
            (SmallConfig(scale=-0.5, seed=3), False),
            (SmallConfig(sizes=(1, 2)), False),
            (dataclasses.replace(quick, seed=1), True),
            (SmallConfig(scratch="/tmp"), False),
            (SmallConfig(scratch=".."), False),
            (SmallConfig(scratch="x-seed=3"), False),
            (SmallConfig(scratch="x", seed=3), False),
            (SmallConfig(sizes=tuple(range(100))), False),
        ]
    ]
    assert names[:5] == [
        "small",
        "small-quick",
        "small-scale=-0.5-seed=3",
        "small-sizes=1,2",
        "small-quick-seed=1",
    ]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"small-[0-9a-f]{8}", names[k]) for k in (5, 7, 9))


@pytest.mark.parametrize(
    ("sizes", "words"), [((), "nothing to compute"), ((2, 2), "the same cell twice")]
)
def test_settings_without_sensible_cells(tmp_path, sizes, words):
    with pytest.raises(LargePromptError, match=words):
        create(tmp_path / "small", SmallConfig(sizes=sizes))
    assert not (tmp_path / "small").exists()


def test_changed_code_never_reuses_cells(tmp_path, monkeypatch):
    complete(create(tmp_path / "small"))
    monkeypatch.setattr(store, "fingerprint", lambda functions: "other code")
    other = create(tmp_path / "small")
    assert (other.state, other.finished_cells) == ("partial", 0)


def test_a_log_that_is_a_pipe_is_refused(tmp_path):
    """A pipe without a reader blocks who opens it; one with a reader takes what is written."""
    run = create(tmp_path / "small")
    (run.folder / "log.txt").unlink()
    os.mkfifo(run.folder / "log.txt")
    with pytest.raises(StorageError, match="cannot write"):
        run.log("a line")
    reader = os.open(run.folder / "log.txt", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(StorageError, match=r"log\.txt is not a plain file"):
        run.log("a line")
    assert os.read(reader, 10) == b""
    os.close(reader)


@pytest.mark.parametrize("name", ["cells", "figures"])
def test_a_folder_that_becomes_a_link_is_noticed_at_the_first_file(tmp_path, name):
    run = create(tmp_path / "small")
    complete(run)
    (tmp_path / "theirs").mkdir()
    (run.folder / name).rename(tmp_path / "moved")
    (run.folder / name).symlink_to(tmp_path / "theirs")
    with pytest.raises(StorageError, match=f"{name} is a link"):
        run.write_cell("size: 1", b"", 1.0) if name == "cells" else run.write("figures/a.png", b"")
    assert not list((tmp_path / "theirs").iterdir())


@pytest.mark.parametrize("name", ["figures", "cells", "log.txt"])
def test_links_in_a_run_folder_are_refused(tmp_path, name):
    """What a link points to belongs to somebody else: nothing there is deleted or written."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "one.png").write_bytes(b"a picture")
    (theirs / "notes.txt").write_text("notes")
    run = create(tmp_path / "small")
    complete(run)
    target = run.folder / name
    if name == "log.txt":
        target.unlink()
        target.symlink_to(theirs / "notes.txt")
    else:
        target.rename(tmp_path / "moved")
        target.symlink_to(theirs)
    for attempt in (
        lambda: create(run.folder, SmallConfig(scale=2.0)),
        run.clear,
        run.drop_results,
    ):
        with pytest.raises(StorageError, match=f"{name} is a link"):
            attempt()
    if name == "log.txt":
        with pytest.raises(StorageError):
            run.log("a line")
    assert (theirs / "one.png").read_bytes() == b"a picture"
    assert (theirs / "notes.txt").read_text() == "notes"


def test_a_run_folder_may_itself_be_reached_by_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    run = create(tmp_path / "link" / "small")
    complete(run)
    assert Run.open(tmp_path / "real" / "small").intact


def test_only_figures_that_captions_name_are_deleted(tmp_path):
    run = create(tmp_path / "small")
    complete(run)
    (run.folder / "figures" / "mine.png").write_bytes(b"a picture of the user's own")
    run.clear()
    assert sorted(path.name for path in (run.folder / "figures").iterdir()) == ["mine.png"]


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a b", "", "one.png", "one\n"])
def test_names_of_figures_are_plain_words(tmp_path, name):
    run = create(tmp_path / "small")
    complete(run)
    rewrite(run, "figures/captions.json", to_json({name: ""}))
    with pytest.raises(RunError, match="should match pattern"):
        _ = run.figures


def test_a_figure_that_is_a_link_is_not_whole(tmp_path):
    run = create(tmp_path / "small")
    complete(run)
    path = run.folder / "figures" / "one.png"
    path.rename(tmp_path / "secret.png")
    path.symlink_to(tmp_path / "secret.png")
    assert run.damaged == ["figures/one.png"]
    assert not run.intact


@pytest.mark.parametrize("seconds", ["NaN", "Infinity", "1e308", "-1.0", "true", '"1"', "1e11"])
def test_a_record_of_a_cell_with_odd_seconds_is_refused(tmp_path, seconds):
    """They are added up, and a sum that is not finite stops a report."""
    run = create(tmp_path / "small")
    complete(run)
    path = run.cell_file("size: 1").with_suffix(".json")
    fields = {name: value for name, value in read_sealed(path).items() if name != "seconds"}
    path.write_bytes(sealed(fields | {"seconds": json.loads(seconds)}))
    with pytest.raises(RunError, match="not the record of cell"):
        run.read_cell("size: 1")
    assert run.missing() == ("size: 1",)


@pytest.mark.parametrize("content", ["5", '["x"]'])
def test_odd_provenance_is_a_run_error(tmp_path, content):
    run = create(tmp_path / "small")
    (run.folder / "provenance.json").write_text(content)
    with pytest.raises(RunError, match="provenance"):
        _ = run.provenance
    assert not run.intact
