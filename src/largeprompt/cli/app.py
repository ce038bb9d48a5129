"""The command's root; plotting and the studies are imported when a subcommand needs them."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

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


def _plain(params: Any) -> Any:
    """Options whose help names no type where they take no value."""
    for each in params:
        if getattr(each, "is_flag", False):
            each.metavar = ""
    return params


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> Any:
        return _plain(super().get_params(ctx))


class _Commands(TyperGroup):
    """Commands that Ctrl-C ends with a word, unless they have more to say themselves."""

    def get_params(self, ctx: Any) -> Any:
        return _plain(super().get_params(ctx))

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


EXAMPLES: dict[Callable[..., None], str] = {
    run: "run convergence --set dim=20 --workers 2",
    reproduce: "reproduce --quick --out runs",
    studies: "studies convergence",
    runs: "runs --json",
    report: "report runs/convergence runs/paper --out report.html",
    plan: "plan --score-variance 2 --dim 16 --tolerance 0.05",
    audit: "audit path/to/model --text prompt.txt --lengths 128,512",
    explore: "explore runs --port 2718",
    doctor: "doctor --json",
}
for command, example in EXAMPLES.items():
    known = f"Studies: {', '.join(names())}; or one of your own, my.py:STUDY. "
    shown = f"{known if command is run else ''}Example: largeprompt {example}"
    app.command(cls=_Command, epilog=shown)(command)
