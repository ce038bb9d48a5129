"""``largeprompt studies`` as its user types it."""

import json

from fake_studies import Fakes
from typer.testing import CliRunner

from largeprompt.cli.app import app
from largeprompt.studies import registry


def studies(*words):
    return CliRunner().invoke(app, ["studies", *words]).output


def test_every_study_has_a_line_with_its_duration(monkeypatch):
    """Ours in the order of the report; what another package brings, whose duration nobody measured, at the end."""
    Fakes().install(monkeypatch)
    monkeypatch.setattr(registry, "SECONDS", {"first": (3.2, 150)})
    assert studies().splitlines()[:3] == ["study\tabout\t--quick\tfull", "first\tFirst\t3 s\t2 min", "second\tSecond\t-\t-"]


def test_a_program_reads_the_question_too(monkeypatch):
    Fakes().install(monkeypatch)
    monkeypatch.setattr(registry, "SECONDS", {"first": (3.2, 150)})
    assert json.loads(studies("--json"))[0] == {
        "study": "first",
        "title": "First",
        "question": "What?",
        "quick_seconds": 3.2,
        "seconds": 150,
    }


def test_a_terminal_shows_a_table(monkeypatch):
    Fakes().install(monkeypatch)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\t" not in studies()
