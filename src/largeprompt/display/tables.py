"""Small tables, as text for a terminal and as HTML for a notebook."""

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

Columns = Mapping[str, Sequence[Any]]


def entry(value: Any) -> str:
    """Words as they are, numbers with four digits; from 1000 whole, with commas."""
    if isinstance(value, str):
        return value
    number = float(value)
    if math.isinf(number):
        return "∞" if number > 0 else "-∞"
    return f"{number:,.0f}" if 1e3 <= abs(number) < 1e9 else f"{number:.4g}"


def plain(value: Any, digits: int = 4) -> str:
    """A number for a line of code: without commas, and whole from 1000, however large."""
    number = float(value)
    return f"{number:.0f}" if 1e3 <= abs(number) < math.inf else f"{number:.{digits}g}"


def rows(columns: Columns) -> list[list[str]]:
    """The names of the columns, then the entries, row by row."""
    entries = zip(*columns.values(), strict=True)
    return [list(columns), *([entry(value) for value in row] for row in entries)]


def text_table(title: str, columns: Columns) -> str:
    """A title and below it the columns, numbers flush right and words flush left."""
    cells = rows(columns)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    words = [all(isinstance(value, str) for value in column) for column in columns.values()]
    lines = [title]
    for row in cells:
        each = zip(row, widths, words, strict=True)
        padded = [cell.ljust(n) if word else cell.rjust(n) for cell, n, word in each]
        lines.append("  ".join(["", *padded]).rstrip())
    return "\n".join(lines)


def html_table(title: str, columns: Columns) -> str:
    """The table in HTML, without colors of its own: for light and dark notebooks."""

    def line(row: Sequence[str], tag: str) -> str:
        style = "text-align: right; padding: 0.15em 0.8em"
        cells = (f'<{tag} style="{style}">{html.escape(cell)}</{tag}>' for cell in row)
        return f"<tr>{''.join(cells)}</tr>"

    head, *body = rows(columns)
    style = "border-collapse: collapse; color: inherit; font: inherit"
    caption = f'<caption style="text-align: left; caption-side: top">{html.escape(title)}</caption>'
    inner = "".join(line(row, "td") for row in body)
    head_row = f"<thead>{line(head, 'th')}</thead>"
    return f'<table style="{style}">{caption}{head_row}<tbody>{inner}</tbody></table>'
