"""``largeprompt studies`` as its user types it."""

import json

from fake_studies import Fakes
from typer.testing import CliRunner

from largeprompt.cli.app import app
from largeprompt.runs.settings import configured, listed
from largeprompt.studies import registry
from largeprompt.studies.claims import CLAIMS


def studies(*words):
    return CliRunner().invoke(app, ["studies", *words]).output


def test_every_study_has_a_line_with_its_duration(monkeypatch):
    """Ours in the order of the report; what another package brings, whose duration nobody measured,
    at the end.
    """
    Fakes().install(monkeypatch)
    monkeypatch.setattr(registry, "SECONDS", {"first": (3.2, 150)})
    assert studies().splitlines()[:3] == [
        "study\tclaims\tabout\t--quick\tfull",
        "first\t\tFirst\t3 s\t2 min",
        "second\t\tSecond\t-\t-",
    ]


def test_a_program_reads_the_question_too(monkeypatch):
    Fakes().install(monkeypatch)
    monkeypatch.setattr(registry, "SECONDS", {"first": (3.2, 150)})
    assert json.loads(studies("--json"))[0] == {
        "study": "first",
        "claims": [],
        "title": "First",
        "question": "What?",
        "quick_seconds": 3.2,
        "seconds": 150,
    }


def test_a_terminal_shows_a_table(monkeypatch):
    Fakes().install(monkeypatch)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\t" not in studies()


def test_claims_are_defined_by_their_ids():
    lines = studies("--claims").splitlines()
    assert [line.split("\t")[0] for line in lines] == ["id", *(claim.id for claim in CLAIMS)]
    assert lines[3] == "\t".join(("C3", CLAIMS[2].name, CLAIMS[2].sentence))
    assert json.loads(studies("--claims", "--json"))[2] == {
        "id": "C3",
        "name": CLAIMS[2].name,
        "sentence": CLAIMS[2].sentence,
    }


def test_studies_with_weights_have_durations_too():
    rows = {row["study"]: row for row in json.loads(studies("--json"))}
    assert all(
        rows[name]["quick_seconds"] and rows[name]["seconds"]
        for name in (*registry.OURS, *registry.WITH_WEIGHTS)
    )


def test_the_settings_of_one_study(monkeypatch):
    Fakes().install(monkeypatch)
    assert studies("first").splitlines()[1:] == [
        "Change a setting: largeprompt run first --set SETTING=VALUE; lists as a,b,c.",
        "",
        "sizes = 1,2,3    --quick: 7",
        "    cells: list, each a whole number",
        "",
        "scale = 1",
        "    of all numbers; 0 gives nothing: number",
        "",
        "seed = 0",
        "    seed of the random numbers: whole number from 0 to 2^53",
    ]
    row = json.loads(studies("second", "--json"))[0]
    assert row == {"name": "sizes", "kind": row["kind"], "default": "4,5", "quick": "7"} | {
        "meaning": ""
    }
    assert "Did you mean" in studies("frist")


def test_every_setting_can_be_described():
    """Of every study: a meaning, a range in words, a default that reads back."""
    for name in registry.names():
        asked = registry.study(name)
        rows = listed(asked)
        assert [row.name for row in rows if not row.meaning] == [], name
        assert all(row.kind and "Annotated" not in row.kind for row in rows), name
        words = [f"{row.name}={row.default}" for row in rows]
        assert configured(asked, words) == asked.config()


def test_quick_is_never_slower():
    for quick, full in (registry.SECONDS | registry.WITH_WEIGHTS).values():
        assert quick <= full
