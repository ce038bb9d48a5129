"""The command as its user types it."""

import pytest
from typer.testing import CliRunner

from largeprompt.cli import app
from largeprompt.experiments import convergence


@pytest.fixture
def small(monkeypatch):
    """The same study, with fewer prompts."""
    whole = convergence.run
    small = convergence.ConvergenceConfig(lengths=(10, 30), tokens_per_length=3000)
    monkeypatch.setattr(convergence, "run", lambda config, progress: whole(small, progress))


@pytest.mark.usefixtures("small")
def test_reproduce_writes_the_figure(tmp_path):
    result = CliRunner().invoke(app, ["reproduce", "--quick", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert {path.name for path in (tmp_path / "convergence").iterdir()} == {"convergence.png", "convergence.pdf"}


def test_unwritable_folder_is_one_clear_sentence(tmp_path):
    (tmp_path / "file").write_text("in the way")
    result = CliRunner().invoke(app, ["reproduce", "--out", str(tmp_path / "file" / "runs")])
    assert result.exit_code == 1
    assert "--out: cannot write to" in result.output
    assert "Traceback" not in result.output


def test_help_shows_an_example():
    result = CliRunner().invoke(app, ["reproduce", "--help"])
    assert result.exit_code == 0
    assert "Example: largeprompt reproduce" in result.output
