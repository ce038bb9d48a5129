"""The command's root; heavy imports wait until a subcommand needs them, so that --help answers at once."""

from __future__ import annotations

import typer

from largeprompt.cli.plan import plan
from largeprompt.cli.reproduce import reproduce

app = typer.Typer(
    name="largeprompt",
    help="What softmax attention does to a prompt, seen as a probability measure.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


app.command(epilog="Example: largeprompt reproduce --out runs")(reproduce)
app.command(epilog="Example: largeprompt plan --score-variance 2 --dim 16 --tolerance 0.05")(plan)
