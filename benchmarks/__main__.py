"""``make bench``: run every benchmark, print the tables, and write docs/benchmarks.md; with names of suites: print those."""

import importlib
import platform
import sys
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

SUITES = {
    "empirical": "Finite prompts as measures (`Empirical`)",
    "finite_prompts": "The exact law, and sampling",
    "engine": "The exact law of any tokens",
    "training": "In-context learning",
    "audit": "Audit of transformers",
    "gpu": "On a GPU",
}


def main() -> None:
    console = Console()
    page = [
        "# Benchmarks",
        "",
        "Ratios against a peer in the same run, written by `make bench`.",
        f"Last run: torch {torch.__version__}, Python {platform.python_version()}, {torch.get_num_threads()} threads.",
    ]
    chosen = sys.argv[1:] or list(SUITES)
    if unknown := set(chosen) - set(SUITES):
        sys.exit(f"no such suite: {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    for name in chosen:
        title, rows = SUITES[name], importlib.import_module(f"benchmarks.{name}").rows()
        table = Table(title=title)
        for column in ("what", "ratio", "absolute"):
            table.add_column(column)
        page += ["", f"## {title}", "", "| what | ratio | absolute |", "|---|---|---|"]
        for row in rows:
            table.add_row(*row)
            page.append("| " + " | ".join(row) + " |")
        console.print(table)
    if len(sys.argv) == 1:
        Path("docs/benchmarks.md").write_text("\n".join(page) + "\n")


if __name__ == "__main__":
    main()
