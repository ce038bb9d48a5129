"""Figures of studies in the look of :mod:`largeprompt.display.look`, and the files they become."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from largeprompt.display.look import COLORS as COLORS
from largeprompt.display.look import DASHES as DASHES
from largeprompt.display.look import MARKERS as MARKERS
from largeprompt.display.look import PALETTE as PALETTE
from largeprompt.display.look import Axes as Axes
from largeprompt.display.look import house_style as house_style
from largeprompt.display.look import length_label as length_label
from largeprompt.runs.study import StudyFigure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def curves(data: xr.Dataset | xr.DataArray, dimension: str) -> Iterator[tuple[int, Any, Any]]:
    """Number, coordinate and slice of every entry of a dimension."""
    for i, value in enumerate(data[dimension].values):
        yield i, value, data.isel({dimension: i})


def look(i: int, **more: Any) -> dict[str, Any]:
    """Color and marker of the i-th curve, and what else is asked of it, as keywords."""
    return {"color": COLORS[i], "marker": MARKERS[i]} | more


def marks(
    axes: Axes, i: int, x: Any, y: Any, error: Any, label: str | None = None, **more: Any
) -> Any:
    """Marks with error bars, in the color of the i-th curve; what was drawn, for a legend."""
    return axes.errorbar(x, y, error, label=label, **look(i, ls="none", ms=4, lw=0.8) | more)


def describe(
    axes: Axes,
    xlabel: str = "",
    ylabel: str = "",
    title: str = "",
    *,
    log: str = "",
    legend: float = 0,
    **more: Any,
) -> None:
    """Set labels and title, logarithmic axes ('x', 'y' or 'xy'), and a legend of this font size.

    ``loc`` and ``ncols`` are the legend's, ``below`` puts it under the panel in so many columns;
    the rest goes to ``Axes.set``.
    """
    words = {"xlabel": xlabel, "ylabel": ylabel, "title": title}
    place: dict[str, Any] = {name: more.pop(name) for name in ("loc", "ncols") if name in more}
    if "below" in more:  # ticks and label of the axis are some five lines of a legend high
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0), "ncols": more.pop("below")}
        place |= {"borderaxespad": 36 / (legend or 7), "columnspacing": 1.0, "handletextpad": 0.4}
    scales = {f"{axis}scale": "log" for axis in log}
    axes.set(**scales, **{name: text for name, text in words.items() if text}, **more)
    if legend:
        axes.legend(fontsize=legend, **place)


def entry(axes: Axes, label: str, **look: Any) -> None:
    """A line of the legend that stands for several of the panel; grey unless told."""
    grey: dict[str, Any] = {"color": "0.35", "lw": 1.0}
    axes.plot([], [], label=label, **grey | look)


def ticks(axes: Axes, which: str, values: Any) -> None:
    """These ticks alone, as plain numbers, on the axis 'x' or 'y'."""
    axis = getattr(axes, f"{which}axis")
    axis.set_ticks(values, labels=[f"{each:g}" for each in values])
    axis.set_ticks([], minor=True)


CARD = (2.0, 1.1)  # inches
VISIBLE = 12  # a change of a color that an eye sees, of 255
MERGED = 1e-3  # share of pixels from which it matters
FEW, MANY = (1, 2, 5), (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)  # ticks within a power of ten
Size = tuple[float, float]
Panels = tuple[int, int]


def study_figure(
    name: str,
    caption: str,
    *,
    size: Size | Callable[[xr.Dataset], Size] = (7.4, 3.1),
    panels: Panels | Callable[[xr.Dataset], Panels] = (1, 2),
    needs: tuple[str, ...] = (),
    cards: Mapping[str, int] | None = None,
    **options: Any,
) -> Callable[[Callable[..., None]], StudyFigure]:
    """Make ``draw(data, *axes)`` a figure of a study in the house style.

    ``size`` in inches and ``panels`` (rows, columns) may depend on the dataset; ``needs`` and
    ``cards`` are those of :class:`StudyFigure`, ``options`` go to ``Figure.subplots``.
    """

    def made(draw: Callable[..., None]) -> StudyFigure:
        def drawn(data: xr.Dataset) -> Figure:
            from matplotlib.figure import Figure

            with house_style():
                figure = Figure(figsize=size(data) if callable(size) else size)
                shape = panels(data) if callable(panels) else panels
                draw(data, *figure.subplots(*shape, squeeze=False, **options).ravel())
            return figure

        return StudyFigure(name, drawn, caption, needs, cards or {})

    return made


def panels(
    name: str,
    caption: str,
    *draw: Callable[[xr.Dataset, Axes], None],
    size: Size = (9.6, 3.3),
    **options: Any,
) -> StudyFigure:
    """Return a figure of panels side by side, each drawn by its own ``draw(data, axes)``."""

    def every(data: xr.Dataset, *row: Axes) -> None:
        for one, axes in zip(draw, row, strict=True):
            one(data, axes)

    return study_figure(name, caption, size=size, panels=(1, len(draw)), **options)(every)


def quiet_ticks(figure: Figure) -> None:
    """Number two or more powers of ten alone on logarithmic axes; else round numbers between."""
    from matplotlib.ticker import MaxNLocator, NullFormatter

    for axes, which in ((axes, which) for axes in figure.axes for which in "xy"):
        axis, low, high = getattr(axes, f"{which}axis"), *sorted(getattr(axes, f"get_{which}lim")())
        if axis.get_scale() != "log":
            continue
        if sum(low <= tick <= high for tick in axis.get_majorticklocs()) > 1:
            axis.set_minor_formatter(NullFormatter())
        else:
            powers = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)))
            few, many = (np.outer(powers, steps).ravel() for steps in (FEW, MANY))
            close = MaxNLocator(4).tick_values(low, high)
            few, many, close = (
                steps[(steps >= low) & (steps <= high)] for steps in (few, many, close)
            )
            ticks(axes, which, few if len(few) > 2 else many if len(many) > 1 else close)


def rendered(figure: Figure, cards: Mapping[str, int] | None = None) -> dict[str, bytes]:
    """Return the files of a figure by their ending: png, pdf, and C3.png for the card of C3."""
    quiet_ticks(figure)
    with house_style():
        files = {"png": _png(figure, dpi=160), "pdf": _saved(figure, "pdf")}
        for claim, panel in (cards or {}).items():
            files[f"{claim}.png"] = _card(figure, panel)
    return files


def _saved(figure: Figure, ending: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=ending, **options)
    return buffer.getvalue()


def _png(figure: Figure, **options: Any) -> bytes:
    """A PNG of 256 colors, a third of the size, where it looks like the picture itself."""
    from PIL import Image

    whole = Image.open(io.BytesIO(_saved(figure, "png", **options))).convert("RGB")
    small = whole.quantize(256, dither=Image.Dither.NONE)
    one, other = (np.asarray(each.convert("RGB"), dtype=np.int16) for each in (whole, small))
    merged = np.mean(np.abs(one - other).max(-1) > VISIBLE)
    buffer = io.BytesIO()
    (whole if merged > MERGED else small).save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def _card(figure: Figure, panel: int) -> bytes:
    """One panel (else the first), small, without numbers or legend; it spoils the figure."""
    figure.set_layout_engine("none")
    figure.set_size_inches(*CARD)
    every = figure.axes
    chosen = every[panel if -len(every) <= panel < len(every) else 0]
    for axes in every:
        axes.set_visible(axes is chosen)
    chosen.set(position=(0.04, 0.2, 0.94, 0.77), title="", ylabel="")
    chosen.tick_params(which="both", labelbottom=False, labelleft=False)
    chosen.grid(visible=False)
    chosen.xaxis.label.set(fontsize=8, visible=True)
    for words in (*chosen.texts, chosen.get_legend(), *figure.texts, *figure.legends):
        if words is not None:
            words.set_visible(False)
    return _png(figure)
