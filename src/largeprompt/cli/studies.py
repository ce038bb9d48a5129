"""``largeprompt studies``: which studies there are, what each is about, and how long it takes."""

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table


def studies(as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False) -> None:
    """List the studies in the order of the report: name, title, and seconds of computing, quick and full."""
    from largeprompt.studies import registry

    rows: list[dict[str, Any]] = []
    for name in registry.names():
        found, (quick, full) = registry.study(name), registry.SECONDS.get(name, (None, None))  # None: of another package
        rows.append({"study": name, "title": found.title, "question": found.question, "quick_seconds": quick, "seconds": full})
    if as_json:
        typer.echo(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    table, columns = Table(box=None, pad_edge=False), ("study", "about", "--quick", "full")
    for column in columns:
        table.add_column(column, justify="right" if column in columns[2:] else "left", no_wrap=column != "about")
    words = [(row["study"], row["title"], *(_duration(row[key]) for key in ("quick_seconds", "seconds"))) for row in rows]
    console = Console()
    if not console.is_terminal:
        for line in (columns, *words):
            typer.echo("\t".join(line))
        return
    for line in words:
        table.add_row(*line)
    console.print(table)


def _duration(seconds: float | None) -> str:
    """Seconds, or minutes from two on."""
    return "-" if seconds is None else f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
