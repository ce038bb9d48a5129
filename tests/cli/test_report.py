"""``largeprompt report`` as its user types it."""

import math

import pytest
import run_folders
import typer
from run_folders import rewrite, verdict
from typer.testing import CliRunner

from largeprompt.cli.report import report
from largeprompt.runs.files import read_sealed, sealed, to_json
from largeprompt.runs.store import Run

APP = typer.Typer()
APP.command()(report)


def run(*words):
    return CliRunner().invoke(APP, [str(word) for word in words])


def make_run(folder, study="convergence"):
    return run_folders.make_run(folder, [verdict()], study=study, title=f"About {study}").folder


def test_one_run_gives_a_report_beside_it(tmp_path):
    result = run(make_run(tmp_path / "runs" / "a"))
    assert result.exit_code == 0, result.output
    target = tmp_path / "runs" / "report.html"
    assert f"wrote {target}" in result.output.replace("\n", "")
    assert "About convergence" in target.read_text(encoding="utf-8")


def test_a_run_may_be_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(make_run(tmp_path / "a"))
    assert run(".").exit_code == 0
    assert (tmp_path / "report.html").exists()
    assert not (tmp_path / "a" / "report.html").exists()


def test_a_folder_of_runs_in_the_order_of_the_studies(tmp_path):
    for study in ("random_query", "limit", "mine", "convergence"):
        make_run(tmp_path / study, study)
    assert run(tmp_path, tmp_path / "limit").exit_code == 0  # a run named twice appears once
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    places = [
        text.index(f'tabindex="-1">About {study}<')
        for study in ("limit", "convergence", "random_query", "mine")
    ]
    assert places == sorted(places)
    assert text.count('tabindex="-1">About limit<') == 1


def test_out_is_where_it_goes(tmp_path):
    target = tmp_path / "new" / "page.html"
    result = run(make_run(tmp_path / "a"), "--out", target)
    assert result.exit_code == 0
    assert target.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert not (tmp_path / "report.html").exists()


def test_no_argument_is_an_error():
    assert run().exit_code == 2


@pytest.mark.parametrize(
    ("kind", "words"), [("absent", "not there"), ("file", "a file"), ("empty", "no run in it")]
)
def test_not_a_run_folder(tmp_path, kind, words):
    path = tmp_path / kind
    if kind == "file":
        path.write_text("x")
    elif kind == "empty":
        path.mkdir()
    result = run(path)
    assert result.exit_code == 2
    assert all(word in result.output for word in ("RUN", words, "largeprompt run NAME"))
    assert not (tmp_path / "report.html").exists()


def test_an_unreadable_run(tmp_path):
    folder = make_run(tmp_path / "a")
    (folder / "config.json").write_text("{")
    make_run(tmp_path / "b")
    alone = run(folder)
    assert alone.exit_code == 1
    assert "config.json" in alone.output
    among = run(tmp_path)
    assert among.exit_code == 0
    assert "left out" in among.output
    (tmp_path / "b" / "verdicts.json").write_text("{")
    assert run(tmp_path / "b").exit_code == 1


def test_a_target_that_cannot_be_written(tmp_path):
    folder = make_run(tmp_path / "a")
    (tmp_path / "file").write_text("x")
    for target in (tmp_path, tmp_path / "file" / "report.html"):
        result = run(folder, "--out", target)
        assert result.exit_code == 1
        assert "cannot write" in result.output
        assert "--out" in result.output
    assert not [*tmp_path.glob(".*.part"), *tmp_path.parent.glob(".*.part")]


def hostile(kind, **fields):
    """Verdicts, or a config, with other fields."""
    if kind == "verdict":
        return to_json([verdict() | fields])
    claim = {"id": "C3", "name": "n", "sentence": "s"} | fields
    told = dict.fromkeys(("study", "title", "question", "method", "rerun", "version"), "limit")
    more = {"config": {}, "quick": False, "cells": ["first"], "claims": [claim]}
    return sealed(told | more)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("figures/captions.json", b"{"),
        ("figures/captions.json", b'{"../outside": "x"}'),
        ("figures/captions.json", b'{"one": ' + b"[" * 10**5),
        ("verdicts.json", b"null"),
        (
            "verdicts.json",
            b'[{"claim": ["C3"], "asked": "?", "outcome": "holds", "measured": "x"}]',
        ),
        (
            "verdicts.json",
            b'[{"claim": "\\ud800", "asked": "?", "outcome": "holds", "measured": "x"}]',
        ),
        ("verdicts.json", b"[" * 10**5),
        ("answer.json", b'{"answer": "", "headings": [], "rows": 5}'),
        ("answer.json", b"[" * 10**5),
        ("verdicts.json", hostile("verdict", claim="²")),
        ("verdicts.json", hostile("verdict", claim="C" + "9" * 5000)),
        ("verdicts.json", hostile("verdict", claim="C3\n")),
        ("config.json", hostile("claim", id="²")),
        ("config.json", hostile("claim", id="C" + "9" * 5000)),
        ("provenance.json", b"[]"),
        *(
            ("provenance.json", sealed({"finished": "2026-11-15", name: value}))
            for value in (math.nan, math.inf, 1e308, -1.0)
            for name, value in (("seconds", value), ("cells", {"a": value, "b": value}))
        ),
        ("provenance.json", sealed({"finished": "2026-11-15", "cells": ["only"]})),
        ("provenance.json", sealed({"finished": "2026-11-15", "seconds": "many"})),
        ("provenance.json", sealed({"finished": "2026-11-15", "files": {"../../outside": ""}})),
        ("provenance.json", sealed({"finished": "2026-11-15", "files": {"a\0.nc": ""}})),
    ],
)
def test_a_bad_file_leaves_out_its_run_and_no_other(tmp_path, file, content):
    """Deep or wrong JSON, surrogates, NUL, ways out of the folder: as a stranger might write them,
    with the right checksums.
    """
    bad = make_run(tmp_path / "bad", "limit")
    if file == "config.json":
        (bad / "provenance.json").unlink()
        (bad / file).write_bytes(content)
    elif file == "provenance.json":
        (bad / file).write_bytes(content)
    else:
        rewrite(Run.open(bad), file, content)
    make_run(tmp_path / "good", "training")
    result = run(tmp_path)
    assert result.exit_code == 0, result.output
    assert "left out" in result.output
    place = str(bad) if file == "config.json" else str(bad / file)
    assert place in result.output.replace("\n", "")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "About training" in text
    assert "About limit" not in text
    assert run(bad).exit_code == 1  # asked for by name it is an error


def test_claims_that_do_not_fit_together_make_a_page(tmp_path):
    """A card of an id that only a verdict has, headlines of blanks, and a claim twice."""
    found = Run.open(make_run(tmp_path / "a"))
    claims = [{"id": "C3", "name": "n", "sentence": "s", "card": "X9"}] * 2
    fields = read_sealed(found.folder / "config.json")
    rewrite(found, "config.json", sealed(fields | {"claims": claims}))
    blank = verdict(headline="   ")
    rewrite(found, "verdicts.json", to_json([verdict("X9"), blank, blank, verdict(headline=".")]))
    assert run(tmp_path / "a", "--out", tmp_path / "page.html").exit_code == 0
    assert "X9" in (tmp_path / "page.html").read_text("utf-8")
