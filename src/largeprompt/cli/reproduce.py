"""``largeprompt reproduce``: every experiment, then figures to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def reproduce(
    out: Annotated[Path, typer.Option(help="Folder that the results are written to.")] = Path("runs"),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer prompts, in seconds rather than minutes.")] = False,
) -> None:
    """Run every study and draw its figures (PNG and PDF)."""
    from largeprompt.experiments.convergence import ConvergenceConfig, run
    from largeprompt.report.figures.convergence import convergence_figure
    from largeprompt.report.figures.style import save

    console = Console()
    errors = Console(stderr=True)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        errors.print(f"[red]--out:[/red] cannot write to {out} ({error.strerror}); choose a folder that you may write to.")
        raise typer.Exit(1) from None
    config = ConvergenceConfig(tokens_per_length=400_000) if quick else ConvergenceConfig()
    with console.status("starting") as status:
        data = run(config, status.update)
    for path in save(convergence_figure(data), out / "convergence", "convergence"):
        console.print(f"wrote {path}", highlight=False, soft_wrap=True)
