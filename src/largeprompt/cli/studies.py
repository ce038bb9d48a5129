"""``largeprompt studies``: which studies there are, what each is about, and how long it takes; and
what the claims are.
"""

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table


def studies(
    claims: Annotated[
        bool, typer.Option("--claims", help="List the claims and questions by their ids instead.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the studies in the order of the report: name, claims, title, and seconds of computing,
    quick and full.
    """
    rows = _claims() if claims else _studies()
    if as_json:
        typer.echo(json.dumps(rows, indent=1, ensure_ascii=False))
    elif claims:
        _show(
            ("id", "claim", "what it says"),
            [(row["id"], row["name"], row["sentence"]) for row in rows],
        )
    else:
        durations = [[_duration(row[key]) for key in ("quick_seconds", "seconds")] for row in rows]
        words = [(row["study"], " ".join(row["claims"]), row["title"]) for row in rows]
        lines = [(*some, *more) for some, more in zip(words, durations, strict=True)]
        _show(("study", "claims", "about", "--quick", "full"), lines)


def _studies() -> list[dict[str, Any]]:
    from largeprompt.studies import registry

    rows: list[dict[str, Any]] = []
    measured = registry.SECONDS | registry.WITH_WEIGHTS
    for name in registry.names():
        # None: of another package
        found, (quick, full) = registry.study(name), measured.get(name, (None, None))
        about = {"study": name, "claims": [claim.id for claim in found.claims if claim.id != name]}
        rows.append(
            about
            | {
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


def _show(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """A table in a terminal, else lines of words between tabs."""
    console = Console()
    if not console.is_terminal:
        for line in (columns, *lines):
            typer.echo("\t".join(line))
        return
    table = Table(box=None, pad_edge=False)
    for column in columns:
        narrow = column in ("--quick", "full")
        table.add_column(
            column,
            justify="right" if narrow else "left",
            no_wrap=column not in ("about", "what it says"),
        )
    for line in lines:
        table.add_row(*line)
    console.print(table)


def _duration(seconds: float | None) -> str:
    """Seconds, or minutes from two on."""
    return (
        "-"
        if seconds is None
        else f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
    )
