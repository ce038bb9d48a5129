"""``largeprompt runs``: which runs there are, and how far they got."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from largeprompt.cli.perform import Out, left_out

if TYPE_CHECKING:
    from largeprompt.runs.store import Run

COLUMNS = ("run", "study", "state", "cells", "finished", "seconds", "verdicts")


def runs(
    out: Out = Path("runs"), as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False
) -> None:
    """List the runs in a folder: state, cells done, when finished, seconds, verdicts."""
    from largeprompt.runs.store import find_runs

    found = [_row(run) for run in find_runs(out, left_out)]
    if as_json:
        typer.echo(json.dumps(found, indent=1, ensure_ascii=False))
        return
    if not found:
        typer.echo(f"no runs in {out}; `largeprompt run NAME` makes one.")
        return
    console = Console()
    if not console.is_terminal:
        for words in [COLUMNS, *map(_words, found)]:
            typer.echo("\t".join(words))
        return
    table = Table()
    for column in COLUMNS:
        table.add_column(column, justify="right" if column in ("cells", "seconds") else "left")
    for row in found:
        table.add_row(*map(Text, _words(row)))
    console.print(table)


def _row(run: Run) -> dict[str, Any]:
    """A run as a program reads it."""
    made = run.provenance
    outcomes = [f"{each.outcome} (control)" if each.control else each.outcome for each in run.verdicts]
    return {
        "run": str(run.folder),
        "study": run.study,
        "quick": run.quick,
        "state": run.state,
        "cells_done": run.finished_cells,
        "cells": len(run.cells),
        "finished": made.get("finished"),
        "seconds": made.get("seconds"),
        "verdicts": {outcome: outcomes.count(outcome) for outcome in dict.fromkeys(outcomes)},
        "rerun": run.rerun,
    }


def _words(row: dict[str, Any]) -> tuple[str, ...]:
    """The same as a person reads it, in the order of the columns."""
    return (
        row["run"],
        row["study"],
        row["state"],
        f"{row['cells_done']}/{row['cells']}",
        row["finished"] or "-",
        "-" if row["seconds"] is None else f"{row['seconds']:.1f}",
        ", ".join(f"{count} {outcome}" for outcome, count in row["verdicts"].items()) or "-",
    )
