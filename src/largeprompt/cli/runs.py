"""``largeprompt runs``: which runs there are, and how far they got."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from largeprompt.cli.perform import Out, Places, left_out, perform, printable, reporting_errors
from largeprompt.errors import LargePromptError

if TYPE_CHECKING:
    from largeprompt.runs.store import Run

COLUMNS = ("run", "study", "state", "cells", "finished", "elapsed", "verdicts")
CONTROL = " (control)"  # after the outcome of one


def runs(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="FOLDER", help="Folder that holds runs; --out says the same."),
    ] = None,
    out: Out = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    finish: Annotated[
        bool,
        typer.Option(
            "--finish", help="Join, judge and draw the runs whose cells are all there; for shards."
        ),
    ] = False,
) -> None:
    """List the runs in a folder: state, cells done, when finished, how long it took by the clock,
    verdicts.
    """
    from largeprompt.runs.store import find_runs

    folder = folder or out
    with reporting_errors():
        if finish:
            _finish(folder)
        found = [_row(run) for run in find_runs(folder, left_out)]
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    if not found:
        typer.echo(printable(f"no runs in {folder}; `largeprompt run NAME` makes one."))
        return
    console = Console()
    if not console.is_terminal:
        for words in [COLUMNS, *map(_words, found)]:
            typer.echo(printable("\t".join(words)))
        return
    table = Table()
    for column in COLUMNS:
        table.add_column(column, justify="right" if column in ("cells", "elapsed") else "left")
    for row in found:
        table.add_row(*(Text(printable(word)) for word in _words(row)))
    console.print(table)


def _finish(folder: Path) -> None:
    """Finish the runs of the library's studies, and of installed ones, whose cells
    are all there.
    """
    from largeprompt.runs.files import RunError
    from largeprompt.runs.settings import config_of
    from largeprompt.runs.store import find_runs
    from largeprompt.studies.registry import study

    wanted = []
    for run in find_runs(folder):
        if run.state == "complete":
            continue
        try:
            # nothing that a folder names is imported
            found = study(run.study) if run.study.isidentifier() else None
            config = found and config_of(found, run.config)
        except LargePromptError as error:
            left_out(RunError(f"{run.folder} ({error})"))
            continue
        if found is None or not run.describes(found, config):
            left_out(
                RunError(
                    f"{run.folder} was begun with other code; what goes on with it: {run.rerun}"
                )
            )
        elif missing := run.missing():
            left_out(RunError(f"{run.folder} lacks {len(missing)} of {len(run.cells)} cells"))
        else:
            wanted.append((found, config, run))
    for trouble in perform(wanted, Places(workers=1)):
        raise trouble


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
    """The same as a person reads it, in the order of the columns."""
    return (
        row["run"],
        row["study"],
        row["state"] + (f" ({', '.join(row['damaged'])})" if row["damaged"] else ""),
        f"{row['cells_done']}/{row['cells']}",
        row["finished"] or "-",
        "-" if row["seconds"] is None else f"{row['seconds']:.1f} s",
        _counts(row["verdicts"]),
    )


def _counts(verdicts: dict[str, int]) -> str:
    """How many questions hold, and how many controls fail: '4 hold, 1 fails; 1 control fails, as it
    must'.
    """
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
