"""Numbers as one reads them, tables, and cards of the page; text from outside is never markup."""

import html
import math
from collections.abc import Iterable, Sequence

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def power_of_ten(exponent: int) -> str:
    """1, 10 or 10ⁿ."""
    return {0: "1", 1: "10"}.get(exponent, "10" + str(exponent).translate(SUPERSCRIPTS))


def in_words(value: float, digits: int = 3) -> str:
    """A number as one reads it: 0.0231, 1,240, 3.2·10⁹, ∞."""
    if math.isnan(value):
        return "unknown"
    if math.isinf(value):
        return "∞"
    exponent = math.floor(math.log10(abs(value))) if value else digits - 1
    if not -3 <= exponent < 7:
        return f"{value / 10.0**exponent:.{digits - 1}f}·{power_of_ten(exponent)}"
    places = digits - 1 - exponent
    return f"{round(value, places):,.{max(0, places)}f}"


def note(words: str) -> str:
    """A line of small print."""
    return f'<p class="foot">{html.escape(words)}</p>'


def table(caption: str, rows: Iterable[Sequence[str]], headings: Sequence[str] = ()) -> str:
    """Rows of a name and its numbers."""
    head = "".join(f'<th scope="col">{html.escape(each)}</th>' for each in headings)
    lines = []
    for name, *cells in rows:
        numbers = "".join(f"<td>{html.escape(each)}</td>" for each in cells)
        name = html.escape(name)
        lines.append(f'<tr data-row="{name}"><th scope="row">{name}</th>{numbers}</tr>')
    return (
        f'<table class="numbers"><caption>{html.escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    )


def answer(name: str, words: str, table: str) -> str:
    """A card with a sentence and a table."""
    return f'<div class="card" id="{name}"><p class="answer">{html.escape(words)}</p>{table}</div>'


def figure(name: str, title: str, svg: str, legend: Iterable[tuple[str, str]] = ()) -> str:
    """A picture with its title, and a legend of (look, words)."""
    keys = "".join(
        f'<span class="key"><i class="swatch {look}"></i>{html.escape(words)}</span>'
        for look, words in legend
    )
    caption = f"<figcaption>{html.escape(title)}</figcaption>"
    return (
        f'<figure class="card" id="{name}">{caption}{svg}<div class="legend">{keys}</div></figure>'
    )


def cards(*each: str) -> str:
    """Cards beside one another, as many as the screen is wide."""
    return f'<div class="cards">{"".join(each)}</div>'
