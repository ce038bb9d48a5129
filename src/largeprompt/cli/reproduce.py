"""``largeprompt reproduce``: every study, and one report about all of them that grows with each."""

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from largeprompt.cli.perform import (
    CellLimit,
    Fresh,
    Out,
    Places,
    Where,
    Workers,
    perform,
    prepare,
    printable,
    reporting_errors,
)
from largeprompt.studies.registry import SECONDS

CORES = 2  # what the help speaks of
# minutes
QUICK, FULL = (
    round(sum(each[kind] for each in SECONDS.values()) / CORES / 60 + 0.5) for kind in (0, 1)
)


def _minutes(count: int) -> str:
    return "1 minute" if count == 1 else f"{count} minutes"


Quick = Annotated[
    bool,
    typer.Option(
        "--quick",
        help=f"Smaller settings: {_minutes(QUICK)} on {CORES} cores instead of {FULL}.",
        show_default=False,
    ),
]


def reproduce(
    quick: Quick = False,
    workers: Workers = None,
    executor: Where = "local",
    cell_limit: CellLimit = None,
    out: Out = Path("runs"),
    fresh: Fresh = False,
) -> None:
    """Compute every study and write OUT/report.html (OUT/report-quick.html with --quick).

    The report is written again after each study, so it can be read from the beginning. Stored
    results are reused; an interrupted command resumes.
    """
    with reporting_errors(fresh=fresh):
        from largeprompt.report.page import write_report
        from largeprompt.runs.files import RunError, StorageError
        from largeprompt.studies import registry

        places = Places(workers, executor, cell_limit)
        wanted, errors = [], []
        for name in registry.OURS:
            try:
                chosen = registry.study(name)
                config = chosen.quick if quick else chosen.config()
                run = prepare(chosen, config, out, quick=quick, fresh=fresh)
                wanted.append((chosen, config, run))
            except StorageError:
                raise
            # one study that cannot be loaded does not take the others with it
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
                errors.append(RunError(f"{name}: cannot be begun ({why})."))
        runs = [run for _, _, run in wanted]
        # a first look does not replace the full report
        page = out / ("report-quick.html" if quick else "report.html")

        def grow() -> None:
            with contextlib.suppress(RunError, OSError):  # what stays wrong is said at the end
                write_report(runs, page)

        grow()
        typer.echo(f"Open {page}: it grows with every study.")
        errors += perform(wanted, places, after=grow)
        try:
            typer.echo(f"Wrote {write_report(runs, page)}")
        except RunError as error:
            errors.append(error)
        except OSError as error:
            errors.append(StorageError.of(out, error))
        for trouble in errors:
            typer.echo(printable(f"error: {trouble}"), err=True)
        if errors:
            raise typer.Exit(1)
