"""A cell's key depends on this package, without what only shows, and on the study's own sources."""

import functools
import shutil
import sys

import pytest

from largeprompt.runs import sources
from largeprompt.runs.sources import fingerprint


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A package and a module of somebody, and a copy of ours to be changed."""
    for path in ("theirs/__init__.py", "theirs/deep/__init__.py", "alone.py", "beside.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("def compute(config, progress):\n    pass\n")
    shutil.copytree(sources.PACKAGE / "runs", tmp_path / "ours" / "largeprompt" / "runs")
    (tmp_path / "ours" / "largeprompt" / "report").mkdir()
    (tmp_path / "ours" / "largeprompt" / "report" / "page.py").touch()
    monkeypatch.setattr(sources, "PACKAGE", tmp_path / "ours" / "largeprompt")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] in ("theirs", "alone")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("path", "package", "module"),
    [
        ("theirs/deep/__init__.py", True, False),
        ("theirs/__init__.py", True, False),
        ("alone.py", False, True),
        ("beside.py", False, True),
        ("ours/largeprompt/runs/store.py", True, True),
        ("ours/largeprompt/report/page.py", False, False),
    ],
)
def test_what_changes_a_key(folder, path, package, module):
    import alone
    import theirs

    asked = ([functools.partial(theirs.compute)], [alone.compute])
    before = [fingerprint(each) for each in asked]
    assert before == [fingerprint(each) for each in asked]
    (folder / path).write_text("# changed\n")
    after = [fingerprint(each) for each in asked]
    assert [a != b for a, b in zip(after, before, strict=True)] == [package, module]


def test_it_does_not_matter_where_a_package_is(folder, monkeypatch):
    import theirs

    before = fingerprint([theirs.compute])
    moved = shutil.move(folder / "ours", folder / "elsewhere")
    monkeypatch.setattr(sources, "PACKAGE", moved / "largeprompt")
    assert fingerprint([theirs.compute]) == before
