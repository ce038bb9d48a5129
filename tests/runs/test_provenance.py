"""The commit of a run, against repositories made for the test."""

import re
import shutil
import subprocess

import pytest

from largeprompt.runs import provenance
from largeprompt.runs.provenance import commit

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="no git here")


def git(folder, *words):
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    return subprocess.run(
        ["git", "-C", str(folder), *who, *words], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def package(tmp_path):
    """A package in a repository of its own, committed."""
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "package")
    git(tmp_path, "commit", "-q", "-m", "first")
    git(tmp_path, "tag", "v1")
    return folder


def test_commit_in_full_and_marked_where_files_differ(package):
    whole = git(package, "rev-parse", "HEAD")
    assert re.fullmatch("[0-9a-f]{40}", whole)
    assert commit(package) == whole  # and not the tag
    (package / "__init__.py").write_text("changed = True")
    assert commit(package) == f"{whole}-dirty"


def test_an_installed_package_in_another_repository_has_no_commit(package, tmp_path):
    installed = package / "site-packages"
    installed.mkdir()
    (installed / "__init__.py").write_text("")
    assert commit(installed) is None
    assert commit(tmp_path / "nothing") is None


def test_without_git_there_is_no_commit(package, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert commit(package) is None


def test_packages_that_are_not_installed_are_left_out():
    assert provenance._version("no-such-package-at-all") is None
    assert provenance._version("numpy")
