"""The command's root; plotting and the studies are imported when a subcommand needs them."""

import contextlib
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from largeprompt import __version__
from largeprompt.cli.audit import audit
from largeprompt.cli.doctor import doctor
from largeprompt.cli.explore import explore
from largeprompt.cli.plan import plan
from largeprompt.cli.report import report
from largeprompt.cli.reproduce import reproduce
from largeprompt.cli.run import run
from largeprompt.cli.runs import runs
from largeprompt.cli.studies import studies
from largeprompt.studies.registry import names


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        raise typer.Exit(130) from None


class _Commands(TyperGroup):
    """Commands that Ctrl-C ends with a word; those that have more to say about it say it
    themselves.
    """

    def make_context(self, *given: Any, **options: Any) -> Any:
        with _interruptible():
            return super().make_context(*given, **options)

    def invoke(self, ctx: Any) -> Any:
        with _interruptible():
            return super().invoke(ctx)


app = typer.Typer(
    name="largeprompt",
    cls=_Commands,
    help="What softmax attention does to a prompt, seen as a probability measure.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"largeprompt {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options of the command itself."""


app.command(
    epilog=f"Studies: {', '.join(names())}; or one of your own, my.py:STUDY. "
    "Example: largeprompt run training --set end_dims=2,5 --workers 2"
)(run)
app.command(epilog="Example: largeprompt reproduce --quick --out runs")(reproduce)
app.command(epilog="Example: largeprompt studies --json")(studies)
app.command(epilog="Example: largeprompt runs --json")(runs)
app.command(epilog="Example: largeprompt report runs/training runs/paper --out report.html")(report)
app.command(epilog="Example: largeprompt plan --score-variance 2 --dim 16 --tolerance 0.05")(plan)
app.command(epilog="Example: largeprompt audit path/to/model --text prompt.txt --lengths 128,512")(
    audit
)
app.command(epilog="Example: largeprompt explore runs --port 2718")(explore)
app.command(epilog="Example: largeprompt doctor --json")(doctor)
