"""``make bench``: run every benchmark, print the tables, write docs/benchmarks.md and the speeds of docs/comparison.md.

With names of suites: run and print those, and write nothing.
"""

import importlib
import platform
import re
import sys
from datetime import date
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

SUITES = {
    "empirical": "Finite prompts as measures (`Empirical`)",
    "finite_prompts": "The exact law, and sampling",
    "engine": "The exact law of any tokens",
    "training": "In-context learning",
    "explore": "The explorer",
    "audit": "Audit of transformers",
    "gpu": "On a GPU",
}
COMPARED = (  # rows that docs/comparison.md shows too, by their first words
    "exact mse against NumPy",
    "authors' grid",
    "audit of the pretrained encoder, 512 tokens, 32 query positions, against",
    "audit of a causal model, 8192 tokens, 32 query positions",
    "the setting of the public audit",
    "the grid of token-sample-complexity",
)
MARKS = ("<!-- written by make bench -->", "<!-- end -->")
TABLE = ["| what | ratio | absolute |", "|---|---|---|"]


def _processor() -> str:
    """The name of the processor where Linux tells it."""
    known = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*:\s*(.*)", known.read_text()) if known.exists() else []
    return f"{names[0]}, {len(names)} cores" if names else platform.machine()


def main() -> None:
    console = Console()
    threads = "one thread" if torch.get_num_threads() == 1 else f"{torch.get_num_threads()} threads"
    versions = f"torch {torch.__version__}, Python {platform.python_version()}, {threads}, {_processor()}"
    ran = f"Last run: {date.today():%-d %B %Y}, {versions}."
    page = [
        "# Benchmarks",
        "",
        "Written by `make bench`: ratios against a peer in the same run, so that the machine matters little, and absolute numbers",
        "beside them. 'Asked' is a goal that was set beforehand. One suite alone, without writing this page:",
        f"`OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks NAME`, NAME among {', '.join(SUITES)}.",
        "",
        ran,
    ]
    chosen = sys.argv[1:] or list(SUITES)
    if unknown := set(chosen) - set(SUITES):
        sys.exit(f"no such suite: {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    for name in chosen:
        title, rows = SUITES[name], importlib.import_module(f"benchmarks.{name}").rows()
        table = Table(title=title)
        for column in ("what", "ratio", "absolute"):
            table.add_column(column)
        page += ["", f"## {title}", "", *(TABLE if rows else ["Not measured in this run: there is none."])]
        for row in rows:
            table.add_row(*row)
            page.append("| " + " | ".join(row) + " |")
        console.print(table)
    if len(sys.argv) == 1:
        Path("docs/benchmarks.md").write_text("\n".join(page) + "\n")
        comparison = Path("docs/comparison.md")
        before, _, rest = comparison.read_text().partition(MARKS[0])
        shown = [line for line in page if line.startswith(tuple(f"| {words}" for words in COMPARED))]
        speeds = "\n".join([MARKS[0], "", ran, "", *TABLE, *shown, "", MARKS[1]])
        comparison.write_text(before + speeds + rest.partition(MARKS[1])[2])


if __name__ == "__main__":
    main()
