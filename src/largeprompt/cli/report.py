"""``largeprompt report``: one HTML file about runs that are there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from largeprompt.cli.perform import left_out, reporting_errors
from largeprompt.errors import InvalidArgumentError

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
    """Write one self-contained HTML page: verdicts on claims, then each run with its figures."""
    from largeprompt.report.page import write_report

    with reporting_errors():
        from largeprompt.runs.files import RunError

        found = {run.folder.resolve(): run for path in runs for run in _runs(path)}
        target = next(iter(found)).parent / "report.html" if out is None else out
        try:
            write_report(list(found.values()), target)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            advice = "choose with --out a file that you may write"
            raise RunError(f"cannot write {target} ({reason}); {advice}.") from None
    typer.echo(f"wrote {target}")


def _runs(path: Path) -> list[Run]:
    """The run in this folder, or those below it that can be read, in the order of the registry."""
    from largeprompt.runs.store import Run, find_runs
    from largeprompt.studies.registry import place

    if (path / "config.json").exists():
        return [Run.open(path)]
    below = [run for run in find_runs(path, left_out) if _answered(run)] if path.is_dir() else []
    if not below:
        what = "which is a file" if path.exists() else "which is not there"
        given = f"{path}, {'with no run in it' if path.is_dir() else what}"
        remedy = "`largeprompt run NAME` makes one; `largeprompt runs` lists those there are."
        allowed = "a run folder, or a folder that holds runs"
        raise InvalidArgumentError("RUN", given, allowed, remedy)
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
