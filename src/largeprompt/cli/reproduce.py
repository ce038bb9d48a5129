"""``largeprompt reproduce``: every experiment, then figures to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure


def studies(quick: bool) -> Iterator[tuple[str, Callable[[Callable[[str], None]], xr.Dataset], Callable[[Any], Figure]]]:
    """Name, computation and figure of each study."""
    from largeprompt.experiments import convergence, drift, exponent, finite_error, phase_diagram, sharpness
    from largeprompt.report.figures.convergence import convergence_figure
    from largeprompt.report.figures.drift import drift_figure
    from largeprompt.report.figures.exponent import exponent_figure
    from largeprompt.report.figures.finite_error import finite_error_figure
    from largeprompt.report.figures.phase_diagram import phase_diagram_figure
    from largeprompt.report.figures.sharpness import sharpness_figure

    first = convergence.ConvergenceConfig(tokens_per_length=400_000) if quick else convergence.ConvergenceConfig()
    second = finite_error.FiniteErrorConfig(replicas=200) if quick else finite_error.FiniteErrorConfig()
    third = phase_diagram.PhaseDiagramConfig(variances=41, lengths=31) if quick else phase_diagram.PhaseDiagramConfig()
    fourth = exponent.ExponentConfig(decades=(2, 6, 10, 14)) if quick else exponent.ExponentConfig()
    yield "convergence", lambda tell: convergence.run(first, tell), convergence_figure
    yield "finite_error", lambda tell: finite_error.run(second, tell), finite_error_figure
    yield "phase_diagram", lambda tell: phase_diagram.run(third, tell), phase_diagram_figure
    yield "exponent", lambda tell: exponent.run(fourth, tell), exponent_figure
    yield "drift", lambda tell: drift.run(drift.DriftConfig(points=256) if quick else drift.DriftConfig(), tell), drift_figure
    yield "sharpness", lambda tell: sharpness.run(sharpness.SharpnessConfig(), tell), sharpness_figure


def reproduce(
    out: Annotated[Path, typer.Option(help="Folder that the results are written to.")] = Path("runs"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer prompts and coarser grids, in seconds rather than minutes.")
    ] = False,
) -> None:
    """Run every study and draw its figures (PNG and PDF)."""
    from largeprompt.report.figures.style import save

    console = Console()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        typer.echo(f"--out: cannot write to {out} ({error.strerror}); choose a folder that you may write to.", err=True)
        raise typer.Exit(1) from None
    for name, compute, draw in studies(quick):
        with console.status(name) as status:
            data = compute(status.update)
        for path in save(draw(data), out / name, name):
            typer.echo(f"wrote {path}")
