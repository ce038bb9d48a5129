"""One look for every figure: colour-blind safe, told apart in grey by marker and dash, vector fonts in the PDF."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

# Okabe and Ito's palette, ordered so that neighbours differ in lightness too
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1)))


def length_label(length: float) -> str:
    """L = 10^k, L = 30 or L = ∞, for a legend."""
    if math.isinf(length):
        return r"$L=\infty$"
    power = math.log10(length)
    return f"$L=10^{{{power:.0f}}}$" if length >= 100 and abs(power - round(power)) < 1e-9 else f"$L={length:g}$"


RC: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
}


@contextmanager
def house_style() -> Iterator[None]:
    """Apply the look inside the block only; the user's own settings stay as they are."""
    with mpl.rc_context(RC):
        yield


def quiet_ticks(figure: Figure) -> None:
    """Leave the minor ticks of a logarithmic axis without numbers where it shows a power of ten: else they overlap."""
    for axes in figure.axes:
        for axis, scale, limits in (
            (axes.xaxis, axes.get_xscale(), axes.get_xlim()),
            (axes.yaxis, axes.get_yscale(), axes.get_ylim()),
        ):
            if scale == "log" and any(min(limits) <= tick <= max(limits) for tick in axis.get_majorticklocs()):
                axis.set_minor_formatter(NullFormatter())


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write NAME.png and NAME.pdf into the folder and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{ending}" for ending in ("png", "pdf")]
    quiet_ticks(figure)
    with house_style():
        for path in paths:
            figure.savefig(path)
    return paths
