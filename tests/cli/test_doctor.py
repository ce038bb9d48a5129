"""``largeprompt doctor`` as its user types it."""

import json

import pytest
from typer.testing import CliRunner

import largeprompt.law.finite
from largeprompt.cli import doctor
from largeprompt.cli.app import app


def run(*words):
    return CliRunner().invoke(app, ["doctor", *words])


def test_all_is_well_here():
    result = run("--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 0
    assert len(found["checks"]) == len(doctor.CHECKS)
    assert all(check["passed"] and check["error"] is None for check in found["checks"])
    assert set(found["versions"]) >= {"python", "largeprompt", "torch"}
    assert "cpu" in found["devices"]
    assert set(found["extras"]) == {"models", "explore", "cluster", "real"}


def test_a_wrong_number_is_found(monkeypatch):
    checks = (
        ("exact law", 1e-13, lambda: 2e-13),
        ("certificate", 0.0, lambda: float("nan")),
        ("sums", 1.0, lambda: 0.5),
    )
    monkeypatch.setattr(doctor, "CHECKS", checks)
    result = run()
    assert result.exit_code == 1
    assert "2 of 3 checks failed" in result.output
    assert result.output.count("FAILED") == 2
    assert "2.0×10⁻¹³" in result.output
    assert "e-" not in result.output


def test_a_broken_function_is_named(monkeypatch):
    def broken(*arguments, **options):
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(largeprompt.law.finite, "finite_prompt", broken)
    monkeypatch.setattr("largeprompt.finite_prompt", broken, raising=False)
    check = doctor._checked("exact law", 1e-13, doctor._enumeration)
    assert not check["passed"]
    assert check["error"] == "RuntimeError: no such kernel"


def test_a_missing_extra_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(doctor, "EXTRAS", {"models": ("a_package_that_is_not_there",)})
    assert doctor._extras() == {
        "models": "lacks a_package_that_is_not_there: pip install '.[models]' where the source is"
    }


@pytest.mark.parametrize("words", [["--jsn"], ["extra"]])
def test_what_it_does_not_know_is_refused(words):
    assert run(*words).exit_code == 2
