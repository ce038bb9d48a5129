"""The registry is the only list of studies; those of others run without a fork, by file, by module,
or installed.
"""

import base64
import dataclasses
import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

import largeprompt as lp
from largeprompt.cli.app import app
from largeprompt.errors import InvalidArgumentError
from largeprompt.runs.settings import configured
from largeprompt.runs.store import Run
from largeprompt.studies import registry

ROOT = Path(__file__).parents[2]
COIN = ROOT / "docs" / "examples" / "coin.py"


def command(*words):
    return CliRunner().invoke(app, list(map(str, words)))


def test_every_study_is_found_by_its_name():
    for name in registry.OURS:
        found = registry.study(name)
        assert found.name == name
        assert found.listed
        assert found.figures
        assert found.cells(found.quick)
        assert {each.claim for each in found.rules} <= {claim.id for claim in found.claims}


@pytest.mark.parametrize("name", registry.OURS)
def test_settings_are_refused_before_a_cell_fails(name):
    """Numbers that are none, seeds below zero or beyond what generators take, and nothing where a
    count is wanted.
    """
    study = registry.study(name)
    for field in dataclasses.fields(study.config):
        value = getattr(study.config(), field.name)
        first = value[0] if isinstance(value, tuple) and value else value
        if isinstance(first, bool) or not isinstance(first, int | float):
            continue
        bad = [
            "nan",
            "-1e400",
            *(["-1", str(2**64)] if field.name == "seed" else []),
            *(["0.5"] if isinstance(first, int) else []),
        ]
        for text in bad:
            with pytest.raises(InvalidArgumentError, match=f"--set {field.name}: got '{text}'"):
                configured(study, [f"{field.name}={text}"])


def test_figure_names_are_distinct_within_a_study():
    for name in registry.OURS:
        names = [figure.name for figure in registry.study(name).figures]
        assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("papr", "Did you mean 'paper'"),
        ("", "one of limit, convergence"),
        ("absent.py:STUDY", "a Python file that is there"),
        ("largeprompt.absent:STUDY", "a study that is there"),
        (".relative", "the full name of a module"),
        ("largeprompt.studies.training.study:NOTHING", "where NOTHING is not there"),
        ("largeprompt.studies.training.study:RULES", "where RULES is a tuple"),
    ],
)
def test_studies_that_are_not_there(name, words):
    with pytest.raises(InvalidArgumentError, match="study") as caught:
        registry.study(name)
    assert words in str(caught.value)


def test_a_file_that_needs_something_missing_says_what(tmp_path):
    (tmp_path / "needy_study.py").write_text("import something_absent")
    with pytest.raises(
        lp.InvalidArgumentError, match=r"needy_study.*No module named .something_absent"
    ):
        registry.study(f"{tmp_path / 'needy_study.py'}:STUDY")


def test_a_study_in_a_file_runs_with_its_figures_and_claims(tmp_path):
    """The example of docs/howto/add_study.md, in real worker processes."""
    result = command("run", f"{COIN}:STUDY", "--quick", "--out", tmp_path, "--workers", 1)
    assert result.exit_code == 0, result.output
    run = Run.open(tmp_path / "coin-quick")
    assert run.intact
    assert [figure.name for figure in run.figures] == ["gap"]
    assert [(each.claim, each.outcome) for each in run.verdicts] == [("fair", "holds")]
    assert f"{COIN}:STUDY" in run.rerun
    assert command("report", run.folder).exit_code == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Fair coins" in page
    assert "Gaussian limit" not in page  # claims of runs that are not there
    assert "not run" not in page


def wheel_of(path, folder):
    """A wheel that holds a study file and names it as an entry point."""
    target = folder / "coin_study-1.0-py3-none-any.whl"
    files = {
        "coin_study.py": path.read_text(),
        "coin_study-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: coin-study\nVersion: "
        "1.0\n",
        "coin_study-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: "
        "true\nTag: py3-none-any\n",
        "coin_study-1.0.dist-info/entry_points.txt": "[largeprompt.studies]\ncoin = "
        "coin_study:STUDY\n",
    }
    record = ""
    for name, text in files.items():
        digest = (
            base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        )
        record += f"{name},sha256={digest},{len(text.encode())}\n"
    with zipfile.ZipFile(target, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
        wheel.writestr(
            "coin_study-1.0.dist-info/RECORD", record + "coin_study-1.0.dist-info/RECORD,,\n"
        )
    return target


def test_an_installed_study_is_in_the_list(tmp_path, monkeypatch):
    place = tmp_path / "site"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--target",
        str(place),
    ]
    subprocess.run([*pip, str(wheel_of(COIN, tmp_path))], check=True)
    monkeypatch.syspath_prepend(place)
    assert registry.names()[-1] == "coin"
    assert registry.study("coin").source == "coin_study:STUDY"
    result = command("run", "coin", "--quick", "--out", tmp_path, "--workers", 1)
    assert result.exit_code == 0, result.output
    assert (
        Run.open(tmp_path / "coin-quick").rerun == f"largeprompt run coin --quick --out {tmp_path}"
    )


@pytest.mark.parametrize("word", ["biases=0.6", "tilts=1", "biases="])
def test_bad_settings_of_the_example_are_refused_at_once(tmp_path, word):
    result = command("run", f"{COIN}:STUDY", "--set", word, "--out", tmp_path / "runs")
    assert result.exit_code == 2
    assert not (tmp_path / "runs").exists()


def test_the_example_without_a_fair_coin_is_undecided(tmp_path):
    result = command(
        "run", f"{COIN}:STUDY", "--set", "biases=0.1", "--out", tmp_path, "--workers", 1
    )
    assert result.exit_code == 0, result.output
    (folder,) = tmp_path.glob("coin-*")
    assert [(each.claim, each.outcome) for each in Run.open(folder).verdicts] == [
        ("fair", "undecided")
    ]
    assert "0 of 1 questions hold." in result.output


def test_runs_stand_in_the_order_of_the_report():
    assert sorted(("mine", "paper", "limit"), key=registry.place) == ["limit", "paper", "mine"]


def test_a_study_without_its_extra_is_refused_before_its_first_cell(monkeypatch, tmp_path):
    monkeypatch.setattr(
        "largeprompt.studies.registry.importlib.util.find_spec",
        lambda name: None if name == "sklearn" else name,
    )
    found = CliRunner().invoke(
        app, ["run", "real_models", "--quick", "--out", str(tmp_path / "runs")]
    )
    assert found.exit_code != 0
    assert "sklearn is not installed" in " ".join(found.output.split())
    assert "pip install '.[real]'" in " ".join(found.output.split())
    assert not (tmp_path / "runs").exists()
