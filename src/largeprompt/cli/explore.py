"""``largeprompt explore``: a page to play with."""

from pathlib import Path
from typing import Annotated

import typer

from largeprompt.cli.perform import reporting_errors


def explore(
    runs_folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUNS_FOLDER",
            help="Folder of runs and audits to open, or one run.",
            show_default="runs",
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on this machine; 0 for any that is free.")
    ] = 2718,
    headless: Annotated[bool, typer.Option("--headless", help="Do not open a browser.")] = False,
) -> None:
    """Open a page in the browser: move the law, the query and the length and see what softmax
    attention does; open finished runs.

    Only this machine can reach the page, and it needs no network.
    """
    from largeprompt.explore.serve import serve

    with reporting_errors():
        serve(runs_folder, port, browser=not headless, say=typer.echo)
