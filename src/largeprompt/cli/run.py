"""``largeprompt run``: one study, with settings of one's own."""

import sys
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
    reporting_errors,
)


def _names(incomplete: str) -> list[str]:
    """Studies for the shell to complete."""
    from largeprompt.studies.registry import names

    return [name for name in names() if name.startswith(incomplete)]


def run(
    name: Annotated[
        str,
        typer.Argument(
            metavar="STUDY",
            help="Name of the study, or my.py:STUDY.",
            autocompletion=_names,
            show_default=False,
        ),
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller settings, for a first look.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a setting; lists as a,b,c. Repeat for several.",
            show_default=False,
        ),
    ] = None,
    workers: Workers = None,
    executor: Where = "local",
    cell_limit: CellLimit = None,
    out: Out = Path("runs"),
    seed: Annotated[
        int | None, typer.Option(help="Seed of the study's random numbers.", show_default=False)
    ] = None,
    fresh: Fresh = False,
) -> None:
    """Compute a study: dataset, verdicts and figures, in a folder named after it and its settings.

    Stored cells are reused; an interrupted command resumes. `largeprompt studies NAME` lists the
    settings.
    """
    with reporting_errors(fresh=fresh):
        from largeprompt.runs.settings import configured
        from largeprompt.studies.registry import check_needed, study

        # a place: modules of the current folder count, as for `python -m`
        if ":" in name or "." in name:
            sys.path.insert(0, str(Path.cwd()))
        chosen = study(name)
        check_needed(chosen.name)
        config = configured(chosen, settings or [], quick=quick, seed=seed)
        places = Places(workers, executor, cell_limit)
        made = prepare(chosen, config, out, quick=quick, fresh=fresh)
        for error in perform([(chosen, config, made)], places):
            raise error
