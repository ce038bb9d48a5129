"""One look for every figure: safe for the colour-blind, distinct in grey by marker and dash, vector fonts in the PDF."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import xarray as xr

from largeprompt.runs.study import StudyFigure

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure
else:  # matplotlib is loaded when a figure is drawn: workers that only compute do without
    Axes = Any

# Okabe and Ito's palette, ordered so that neighbours differ in lightness too; each list starts again where it ends
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
COLOURS = PALETTE * 20
MARKERS = ("o", "s", "^", "D", "v", "P", "X") * 20
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1))) * 20


def length_label(length: float) -> str:
    """L = 10^k, L = 30 or L = ∞, for a legend."""
    if math.isinf(length):
        return r"$L=\infty$"
    power = math.log10(length)
    return f"$L=10^{{{power:.0f}}}$" if length >= 100 and abs(power - round(power)) < 1e-9 else f"$L={length:g}$"


def curves(data: xr.Dataset | xr.DataArray, dimension: str) -> Iterator[tuple[int, Any, Any]]:
    """Number, coordinate and slice of every entry of a dimension."""
    for i, value in enumerate(data[dimension].values):
        yield i, value, data.isel({dimension: i})


def look(i: int, **more: Any) -> dict[str, Any]:
    """Colour and marker of the i-th curve, and what else is asked of it, as keywords."""
    return {"color": COLOURS[i], "marker": MARKERS[i]} | more


def marks(axes: Axes, i: int, x: Any, y: Any, error: Any, label: str | None = None, **more: Any) -> Any:
    """Marks with error bars, in the colour of the i-th curve; what was drawn, for a legend."""
    return axes.errorbar(x, y, error, label=label, **look(i, ls="none", ms=4, lw=0.8) | more)


def describe(
    axes: Axes, xlabel: str = "", ylabel: str = "", title: str = "", *, log: str = "", legend: float = 0, **more: Any
) -> None:
    """Labels and title, which axes are logarithmic ('x', 'y' or 'xy'), a legend of this font size, and other properties.

    ``loc`` and ``ncols`` are the legend's, the rest goes to ``Axes.set``.
    """
    words = {"xlabel": xlabel, "ylabel": ylabel, "title": title}
    place = {name: more.pop(name) for name in ("loc", "ncols") if name in more}
    axes.set(**{f"{axis}scale": "log" for axis in log}, **{name: text for name, text in words.items() if text}, **more)
    if legend:
        axes.legend(fontsize=legend, **place)


def ticks(axes: Axes, which: str, values: Any) -> None:
    """These ticks alone, as plain numbers, on the axis 'x' or 'y'."""
    axis = getattr(axes, f"{which}axis")
    axis.set_ticks(values, labels=[f"{each:g}" for each in values])
    axis.set_ticks([], minor=True)


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
    import matplotlib as mpl

    with mpl.rc_context(RC):
        yield


Size = tuple[float, float]
Panels = tuple[int, int]


def study_figure(
    name: str,
    caption: str,
    *,
    size: Size | Callable[[xr.Dataset], Size] = (7.4, 3.1),
    panels: Panels | Callable[[xr.Dataset], Panels] = (1, 2),
    needs: tuple[str, ...] = (),
    **options: Any,
) -> Callable[[Callable[..., None]], StudyFigure]:
    """Make a function that draws a dataset into panels, ``draw(data, *axes)``, a figure of a study in the house style.

    ``size`` in inches and ``panels`` (rows, columns) may depend on the dataset; ``options`` go to ``Figure.subplots``.
    """

    def made(draw: Callable[..., None]) -> StudyFigure:
        def drawn(data: xr.Dataset) -> Figure:
            from matplotlib.figure import Figure

            with house_style():
                figure = Figure(figsize=size(data) if callable(size) else size)
                axes = figure.subplots(*(panels(data) if callable(panels) else panels), squeeze=False, **options)
                draw(data, *axes.ravel())
            return figure

        return StudyFigure(name, drawn, caption, needs)

    return made


def quiet_ticks(figure: Figure) -> None:
    """Leave the minor ticks of a logarithmic axis without numbers where it shows a power of ten: else they overlap."""
    from matplotlib.ticker import NullFormatter

    for axes in figure.axes:
        for axis, scale, limits in (
            (axes.xaxis, axes.get_xscale(), axes.get_xlim()),
            (axes.yaxis, axes.get_yscale(), axes.get_ylim()),
        ):
            if scale == "log" and any(min(limits) <= tick <= max(limits) for tick in axis.get_majorticklocs()):
                axis.set_minor_formatter(NullFormatter())


def rendered(figure: Figure) -> dict[str, bytes]:
    """The figure as the files that a run stores, by their ending: png and pdf."""
    quiet_ticks(figure)
    files = {}
    with house_style():
        for ending in ("png", "pdf"):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=ending)
            files[ending] = buffer.getvalue()
    return files
