"""A study by its place: a module of the current folder, or a file, in the command and in its
workers.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from largeprompt.errors import InvalidArgumentError
from largeprompt.runs.find import find_study
from largeprompt.runs.store import Run

COIN = Path(__file__).parents[2] / "docs" / "examples" / "coin.py"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with a study as module, in a package and as a file."""
    (tmp_path / "mine").mkdir()
    for path in ("my_coin.py", "mine/coins.py"):
        (tmp_path / path).write_text(COIN.read_text())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_finds_studies_of_the_current_folder(folder):
    """The installed command, whose path does not begin with the current folder, and a worker
    process.
    """
    command = [
        str(Path(sys.executable).with_name("largeprompt")),
        "run",
        "mine.coins:STUDY",
        "--quick",
        "--workers",
        "1",
        "--out",
        "runs",
    ]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr
    run = Run.open(folder / "runs" / "coin-quick")
    assert run.intact
    assert run.figures
    study = find_study(f"{COIN}:STUDY")
    assert run.dataset.identical(study.run(study.quick))


def test_a_file_in_the_path_is_no_other_module(folder, monkeypatch):
    """As with ``python -m largeprompt``, where the current folder is in the path."""
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.delitem(sys.modules, "my_coin", raising=False)
    assert find_study("my_coin.py:STUDY").name == "coin"
    monkeypatch.delitem(sys.modules, "my_coin")


def test_a_file_with_the_name_of_a_module_is_refused(folder):
    (folder / "json.py").write_text("")
    with pytest.raises(InvalidArgumentError, match=r"another module 'json'"):
        find_study("json.py:STUDY")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            "import no_such_module\n",
            "ModuleNotFoundError: No module named 'no_such_module'; {}, line 1",
        ),
        ("\n1 / 0\n", "ZeroDivisionError: division by zero; {}, line 2"),
        ("x = 1\nx = (\n", "SyntaxError: '(' was never closed; {}, line 2"),
        ("x = 1\0\n", "null bytes"),
        ("raise SystemError('\x1b[2J')\n", "SystemError"),
        ("'\\ud800'.encode()\n", "UnicodeEncodeError"),
    ],
)
def test_a_file_that_cannot_be_imported_is_named_with_the_line(folder, content, said):
    (folder / "wrong.py").write_text(content)
    with pytest.raises(InvalidArgumentError) as caught:
        find_study("wrong.py:STUDY")
    assert said.format(folder / "wrong.py") in str(caught.value)
    assert "wrong" not in sys.modules
