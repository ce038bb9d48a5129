"""``make bench``: run every suite, print its table, and write it into docs/benchmarks.md and the
speeds of docs/comparison.md.

With names of suites those alone are run, and their sections written anew; a section whose machine
is not here (no GPU) stays.
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


def _machine(suite: str) -> str:
    """What a suite ran on, in words."""
    threads = "one thread" if torch.get_num_threads() == 1 else f"{torch.get_num_threads()} threads"
    device = torch.cuda.get_device_name() if suite == "gpu" else f"{threads} of {_processor()}"
    return (
        f"{date.today():%-d %B %Y}, {device}, torch {torch.__version__}, Python "
        f"{platform.python_version()}"
    )


def _sections(page: Path) -> dict[str, list[str]]:
    """Sections of a page as lines, by their titles."""
    found: dict[str, list[str]] = {}
    for line in page.read_text().splitlines() if page.exists() else []:
        if line.startswith("## "):
            found[line[3:]] = []
        elif found:
            next(reversed(found.values())).append(line)
    return found


def main() -> None:
    console, page, comparison = Console(), Path("docs/benchmarks.md"), Path("docs/comparison.md")
    chosen = sys.argv[1:] or list(SUITES)
    if unknown := set(chosen) - set(SUITES):
        sys.exit(f"no such suite: {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    sections = _sections(page)
    for name in chosen:
        rows = importlib.import_module(f"benchmarks.{name}").rows()
        table = Table(title=SUITES[name])
        for column in ("what", "ratio", "absolute"):
            table.add_column(column)
        for row in rows:
            table.add_row(*row)
        console.print(table if rows else f"{SUITES[name]}: not measured, there is none here")
        if rows:
            sections[SUITES[name]] = [
                "",
                f"Last run: {_machine(name)}.",
                "",
                *TABLE,
                *("| " + " | ".join(row) + " |" for row in rows),
                "",
            ]
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`: ratios against a peer in the same run, so that the machine "
        "matters little, and absolute numbers",
        "beside them. 'Asked' is a goal that was set beforehand. One suite alone:",
        f"`OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks NAME`, NAME among {', '.join(SUITES)}.",
        "",
    ]
    for title in SUITES.values():
        lines += [f"## {title}", *sections.get(title, ["", "Not measured yet.", ""])]
    page.write_text("\n".join(lines).rstrip() + "\n")
    before, _, rest = comparison.read_text().partition(MARKS[0])
    shown = [line for line in lines if line.startswith(tuple(f"| {words}" for words in COMPARED))]
    ran = next(
        (line for line in sections[SUITES["finite_prompts"]] if line.startswith("Last run")), ""
    )
    speeds = "\n".join([MARKS[0], "", ran, "", *TABLE, *shown, "", MARKS[1]])
    comparison.write_text(before + speeds + rest.partition(MARKS[1])[2])


if __name__ == "__main__":
    main()
