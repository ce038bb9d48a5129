"""A cell's key depends on the sources that its computation reaches, and on no other."""

import sys
import textwrap

import pytest

from largeprompt.runs import store
from largeprompt.runs.sources import fingerprint, reached
from largeprompt.studies.registry import OURS, study


@pytest.mark.parametrize("name", OURS)
def test_cells_of_a_study_depend_on_what_it_computes_with(name, tmp_path, monkeypatch):
    """Not on its rules and figures, nor on the report or the command; what Run.create hashes is
    looked at, not a copy of it.
    """
    asked = []

    def seen(functions):
        asked.append(
            set(reached(frozenset(getattr(each, "func", each).__module__ for each in functions)))
        )
        return ""

    monkeypatch.setattr(store, "fingerprint", seen)
    found = study(name)
    store.Run.create(tmp_path / name, found, found.quick, quick=True, rerun="")
    everything, cells = asked
    assert {f"largeprompt.studies.{name}.{part}" for part in ("rules",)} <= everything
    assert not [
        each
        for each in cells
        if ".studies." in each and each.endswith((".figures", ".rules", ".study"))
    ]
    assert not [
        each for each in cells if each.startswith(("largeprompt.report", "largeprompt.cli"))
    ]
    assert "largeprompt.errors" in cells


def test_editing_the_audit_keeps_the_cells_of_other_studies():
    modules = set(reached(frozenset(part.compute.__module__ for part in study("paper").parts)))
    assert {"largeprompt.studies.paper.parts", "largeprompt.training.dynamics.flow"} <= modules
    assert not [name for name in modules if name.startswith("largeprompt.audit")]


@pytest.mark.parametrize(
    "line", ["import largeprompt.training as x", "from largeprompt import training as x"]
)
def test_a_package_whose_names_are_loaded_lazily_is_reached_whole(package, line):
    (package / "near.py").write_text(f"{line}\nx = 1")
    import mypackage.study

    modules = set(reached(frozenset([mypackage.study.compute.__module__])))
    assert {
        "largeprompt.training.dynamics.flow",
        "largeprompt.training.gaps.tube",
        "largeprompt.law.quadrature",
    } <= modules


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of four modules, of which the study's reaches two, one of them from inside a
    function.
    """
    folder = tmp_path / "mypackage"
    folder.mkdir()
    sources = {
        "__init__": "",
        "study": "from mypackage.near import x\n\ndef compute(config, progress):\n    from . "
        "import late\n    return late",
        "near": "x = 1",
        "late": "y = 1",
        "other": "z = 1",
    }
    for name, text in sources.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.startswith("mypackage")]:
        del sys.modules[name]
    reached.cache_clear()


@pytest.mark.parametrize(
    ("name", "changes"), [("study", True), ("near", True), ("late", True), ("other", False)]
)
def test_only_what_is_reached_changes_the_key(package, name, changes):
    import mypackage.study

    before = fingerprint([mypackage.study.compute])
    (package / f"{name}.py").write_text((package / f"{name}.py").read_text() + "\n# changed\n")
    assert (fingerprint([mypackage.study.compute]) != before) == changes


def test_import_of_the_package_itself_reaches_all_of_it(package):
    (package / "near.py").write_text("import largeprompt as lp\nx = 1")
    import mypackage.study

    modules = set(reached(frozenset([mypackage.study.compute.__module__])))
    assert {"largeprompt.law.finite", "largeprompt.audit.model", "mypackage.late"} <= modules
    assert "largeprompt.cli.app" not in modules
