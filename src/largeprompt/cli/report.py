"""``largeprompt report``: one HTML file about runs that are there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from largeprompt.cli.perform import left_out, reporting_errors

if TYPE_CHECKING:
    from largeprompt.runs.store import Run


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN", help="Run folders, or folders that hold runs.", show_default=False
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write; by default report.html beside the first run.", show_default=False
        ),
    ] = None,
) -> None:
    """Write one self-contained HTML page: a verdict for each claim, then question, method, figures
    and settings of each run.
    """
    from largeprompt.report.page import write_report

    with reporting_errors():
        found = {run.folder.resolve(): run for path in runs for run in _runs(path)}
        target = next(iter(found)).parent / "report.html" if out is None else out
        try:
            write_report(list(found.values()), target)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            typer.echo(
                f"error: cannot write {target} ({reason}); choose with --out a file that you may "
                "write.",
                err=True,
            )
            raise typer.Exit(1) from None
    typer.echo(f"wrote {target}")


def _runs(path: Path) -> list[Run]:
    """The run in this folder, or those below it in the order of the registry; what cannot be read
    is reported and left out.
    """
    from largeprompt.errors import InvalidArgumentError
    from largeprompt.runs.store import Run, find_runs
    from largeprompt.studies.registry import place

    remedy = "`largeprompt run NAME` makes one; `largeprompt runs` lists those there are."
    if not path.is_dir():
        given = f"{path}, which is {'a file' if path.exists() else 'not there'}"
        raise InvalidArgumentError(
            "RUN", given, "a run folder, or a folder that holds runs", remedy
        )
    if (path / "config.json").exists():
        return [Run.open(path)]
    below = [run for run in find_runs(path, left_out) if _answered(run)]
    if not below:
        raise InvalidArgumentError(
            "RUN", f"{path}, with no run in it", "a run folder, or a folder that holds runs", remedy
        )
    return sorted(below, key=lambda run: place(run.study))


def _answered(run: Run) -> bool:
    """Whether what stands above the figures of a run can be read, if it has such a thing."""
    from largeprompt.report.sections import told
    from largeprompt.runs.files import RunError

    try:
        told(run)
    except RunError as error:
        left_out(error)
        return False
    return True
