"""Small tables, as text for a terminal and as HTML for a notebook."""

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

Columns = Mapping[str, Sequence[Any]]


def entry(value: Any) -> str:
    """One entry: words as they are, numbers with four digits; from 1000 on whole, their digits in
    groups of three.
    """
    if isinstance(value, str):
        return value
    number = float(value)
    if math.isinf(number):
        return "∞" if number > 0 else "-∞"
    return f"{number:,.0f}" if 1e3 <= abs(number) < 1e9 else f"{number:.4g}"


def plain(value: Any, digits: int = 4) -> str:
    """The same for a line of code: no groups of digits, and whole from 1000 on, however large."""
    number = float(value)
    return f"{number:.0f}" if 1e3 <= abs(number) < math.inf else f"{number:.{digits}g}"


def rows(columns: Columns) -> list[list[str]]:
    """The names of the columns, then the entries, row by row."""
    return [
        list(columns),
        *([entry(value) for value in row] for row in zip(*columns.values(), strict=True)),
    ]


def text_table(title: str, columns: Columns) -> str:
    """A title and below it the columns, numbers flush right and words flush left."""
    cells = rows(columns)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    words = [all(isinstance(value, str) for value in column) for column in columns.values()]
    lines = [
        "  "
        + "  ".join(
            cell.ljust(width) if word else cell.rjust(width)
            for cell, width, word in zip(row, widths, words, strict=True)
        )
        for row in cells
    ]
    return "\n".join([title, *(line.rstrip() for line in lines)])


def html_table(title: str, columns: Columns) -> str:
    """The same in HTML. It has no colours of its own, so that light and dark notebooks show it
    alike.
    """
    head, *body = ([html.escape(cell) for cell in row] for row in rows(columns))
    style = "text-align: right; padding: 0.15em 0.8em"
    names = "".join(f'<th style="{style}">{name}</th>' for name in head)
    lines = "".join(
        "<tr>" + "".join(f'<td style="{style}">{cell}</td>' for cell in row) + "</tr>"
        for row in body
    )
    caption = (
        '<caption style="text-align: left; color: inherit; caption-side: '
        f'top">{html.escape(title)}</caption>'
    )
    inherited = "border-collapse: collapse; color: inherit; font: inherit"
    return f'<table style="{inherited}">{caption}<thead><tr>{names}</tr></thead><tbody>{lines}</tbody></table>'
