"""Laws as mathematicians write them, in plain text and in LaTeX.

A law writes itself once, in Unicode with LaTeX's ``^{...}`` and ``_{...}``, such as ``N(0, I) on
R^{4}``; :func:`plain` and :func:`latex` make of it what ``print`` and a notebook show.
"""

import re
from typing import Any

import numpy as np

from largeprompt.display.look import array

MOST = 3  # rows and columns that are written out
RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
MACROS = {
    "Γ": r"\Gamma",
    "Λ": r"\Lambda",
    "Σ": r"\sum",
    "δ": r"\delta",
    "μ": r"\mu",
    "π": r"\pi",
    "ω": r"\omega",
    "⊗": r"\otimes",
    "±": r"\pm",
    "·": r"\cdot",
    "~": r"\sim",
    "≤": r"\leq",
}


def number(value: float) -> str:
    """A number of at most four digits; very large and very small ones with a power of ten."""
    digits, _, power = f"{float(value):.4g}".replace("inf", "∞").partition("e")
    return f"{digits}·10^{{{int(power)}}}" if power else digits


def vector(values: Any, symbol: str) -> str:
    """One number, 0, a few numbers in brackets, or else the symbol."""
    entries = array(values)
    if entries.ndim != 1:
        return symbol
    if not entries.any():
        return "0"
    if len(entries) > MOST:
        return symbol
    return number(entries[0]) if len(entries) == 1 else f"({', '.join(map(number, entries))})"


def matrix(values: Any, symbol: str) -> str:
    """One number, a multiple of I, a few rows, or else the symbol."""
    entries = array(values)
    if entries.ndim != 2:
        return symbol
    if not entries.any():
        return "0"
    if entries.size == 1:
        return number(entries[0, 0])
    diagonal = entries.diagonal()
    square = entries.shape[0] == entries.shape[1]
    if square and np.count_nonzero(entries) == len(entries) and (diagonal == diagonal[0]).all():
        return "I" if diagonal[0] == 1 else f"{number(diagonal[0])} I"
    rows = [f"[{', '.join(map(number, row))}]" for row in entries]
    return symbol if max(entries.shape) > MOST else f"[{', '.join(rows)}]"


def plain(formula: str) -> str:
    """The formula for a terminal: powers as raised digits, indices after an underscore."""
    raised = re.sub(r"\^\{(-?\d+)\}", lambda found: found[1].translate(RAISED), formula)
    return re.sub(r"([\^_])\{([\w⊗]*)\}", r"\1\2", raised)


def latex(formula: str) -> str:
    """The formula between dollars, for a notebook."""

    def rows(found: re.Match[str]) -> str:
        return (
            r"\begin{pmatrix}"
            + found[1].replace("], [", r"\\").replace(", ", "&")
            + r"\end{pmatrix}"
        )

    text = re.sub(r"\[\[(.*?)\]\]", rows, formula)
    text = re.sub(r"(?<![\\{A-Za-z])([A-Za-z]{2,})(?![A-Za-z}])", r"\\mathrm{\1}", text)
    for pattern, macro in (
        (r"\bR\b", r"\\mathbb{R}"),
        (r"\bN\(", r"\\mathcal{N}("),
        (r"√(\d+)", r"\\sqrt{\1}"),
    ):
        text = re.sub(pattern, macro, text)
    text = text.replace(" ", r"\ ").replace("∞", r"\infty ")
    return (
        "$" + "".join(f"{MACROS[letter]} " if letter in MACROS else letter for letter in text) + "$"
    )
