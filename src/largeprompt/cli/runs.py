"""``largeprompt runs``: which runs there are, and how far they got."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from largeprompt.cli.perform import AsJson, Out, left_out, print_rows, printable, reporting_errors

if TYPE_CHECKING:
    from largeprompt.runs.store import Run

COLUMNS = ("run", "state", "cells", "finished", "elapsed", "verdicts")
CONTROL = " (control)"  # after the outcome of one


def runs(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="FOLDER", help="Folder that holds runs; --out says the same."),
    ] = None,
    out: Out = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """List the runs in a folder: state, cells, when and how long, verdicts."""
    from largeprompt.runs.store import find_runs

    folder = folder or out
    with reporting_errors():
        found = [_row(run) for run in find_runs(folder, left_out)]
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    if not found:
        typer.echo(printable(f"no runs in {folder}; `largeprompt run NAME` makes one."))
        return
    print_rows(COLUMNS, map(_words, found), right=("cells", "elapsed"))


def _row(run: Run) -> dict[str, Any]:
    """A run as a program reads it."""
    made = run.provenance
    outcomes = [each.outcome + CONTROL if each.control else each.outcome for each in run.verdicts]
    return {
        "run": str(run.folder),
        "study": run.study,
        "quick": run.quick,
        "state": "damaged" if (damaged := run.damaged) else run.state,
        "damaged": damaged,
        "cells_done": run.finished_cells,
        "cells": len(run.cells),
        "finished": made.get("finished"),
        "seconds": made.get("seconds"),
        "verdicts": {outcome: outcomes.count(outcome) for outcome in dict.fromkeys(outcomes)},
        "rerun": run.rerun,
    }


def _words(row: dict[str, Any]) -> tuple[str, ...]:
    """A run as a person reads it, in the order of the columns."""
    return (
        row["run"],
        row["state"] + (f" ({', '.join(row['damaged'])})" if row["damaged"] else ""),
        f"{row['cells_done']}/{row['cells']}",
        (row["finished"] or "-").partition("+")[0].replace("T", " "),
        "-" if row["seconds"] is None else f"{row['seconds']:.1f} s",
        _counts(row["verdicts"]),
    )


def _counts(verdicts: dict[str, int]) -> str:
    """Counts in words: '4 hold, 1 fails; 1 control fails, as it must'."""
    asked, controls = [], []
    for outcome, count in verdicts.items():
        word = outcome.removesuffix(CONTROL)
        said = word if count == 1 else word.replace("holds", "hold").replace("fails", "fail")
        must = (
            "but must fail" if word != "fails" else "as it must" if count == 1 else "as they must"
        )
        if word == outcome:
            asked.append(f"{count} {said}")
        else:
            controls.append(f"{count} control{'' if count == 1 else 's'} {said}, {must}")
    return "; ".join(part for part in (", ".join(asked), *controls) if part) or "-"
