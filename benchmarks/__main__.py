"""``make bench``: run every benchmark, print the table, and write it to docs/benchmarks.md."""

import importlib
import platform
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
}


def main() -> None:
    console = Console()
    page = [
        "# Benchmarks",
        "",
        "Ratios against a peer in the same run, written by `make bench`.",
        f"Last run: torch {torch.__version__}, Python {platform.python_version()}, {torch.get_num_threads()} threads.",
    ]
    for name, title in SUITES.items():
        rows = importlib.import_module(f"benchmarks.{name}").rows()
        table = Table(title=title)
        for column in ("what", "ratio", "absolute"):
            table.add_column(column)
        page += ["", f"## {title}", "", "| what | ratio | absolute |", "|---|---|---|"]
        for row in rows:
            table.add_row(*row)
            page.append("| " + " | ".join(row) + " |")
        console.print(table)
    Path("docs/benchmarks.md").write_text("\n".join(page) + "\n")


if __name__ == "__main__":
    main()
