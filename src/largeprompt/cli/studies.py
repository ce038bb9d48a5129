"""``largeprompt studies``: the studies, the settings of one, and the claims."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from largeprompt.cli.perform import AsJson, print_rows, reporting_errors


def studies(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="List the settings of this study.")
    ] = "",
    claims: Annotated[
        bool, typer.Option("--claims", help="List the claims and questions by their ids instead.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the studies in the order of the report, or the settings of one."""
    with reporting_errors():
        rows = _settings(name) if name else _claims() if claims else _studies()
    if as_json:
        typer.echo(json.dumps(rows, indent=1, ensure_ascii=False))
    elif name:
        _describe(name, rows)
    elif claims:
        said = [(row["id"], row["name"], row["sentence"]) for row in rows]
        print_rows(("id", "claim", "what it says"), said, whole=["id"])
    else:
        lines = [
            (
                row["study"],
                " ".join(row["claims"]),
                row["title"],
                _duration(row["quick_seconds"]),
                _duration(row["seconds"]),
            )
            for row in rows
        ]
        times = ("--quick", "full")
        columns = ("study", "claims", "about", *times)
        print_rows(columns, lines, right=times, whole=("study", *times))


def _studies() -> list[dict[str, Any]]:
    from largeprompt.studies import registry

    rows: list[dict[str, Any]] = []
    measured = registry.SECONDS | registry.WITH_WEIGHTS
    for name in registry.names():
        # None: of another package
        found, (quick, full) = registry.study(name), measured.get(name, (None, None))
        rows.append(
            {
                "study": name,
                "claims": [claim.id for claim in found.claims if claim.id != name],
                "title": found.title,
                "question": found.question,
                "quick_seconds": quick,
                "seconds": full,
            }
        )
    return rows


def _claims() -> list[dict[str, Any]]:
    from largeprompt.studies.claims import CLAIMS

    return [{"id": claim.id, "name": claim.name, "sentence": claim.sentence} for claim in CLAIMS]


def _settings(name: str) -> list[dict[str, Any]]:
    from largeprompt.runs.settings import listed
    from largeprompt.studies.registry import study

    return [dataclasses.asdict(setting) for setting in listed(study(name))]


def _describe(name: str, rows: Sequence[dict[str, str]]) -> None:
    """The study in two lines, and two for each setting: its value, and what it takes and means."""
    from largeprompt.studies.registry import study

    found = study(name)
    typer.echo(f"{found.title}. {found.question}")
    typer.echo(f"Change a setting: largeprompt run {name} --set SETTING=VALUE; lists as a,b,c.")
    for row in rows:
        quick = f"    --quick: {row['quick']}" if row["quick"] != row["default"] else ""
        typer.echo(f"\n{row['name']} = {row['default']}{quick}")
        typer.echo(f"    {': '.join(each for each in (row['meaning'], row['kind']) if each)}")


def _duration(seconds: float | None) -> str:
    """Seconds, or minutes from two on."""
    if seconds is None:
        return "-"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
