"""One look for every picture: safe for the color-blind, and distinct in gray."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from largeprompt.errors import InvalidArgumentError

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
else:  # matplotlib is loaded when a figure is drawn: workers that only compute do without
    Axes = Any

# Okabe and Ito's palette, ordered so that neighbors differ in lightness too
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
COLORS = PALETTE * 20
MARKERS = ("o", "s", "^", "D", "v", "P", "X") * 20
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1))) * 20

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


def length_label(length: float) -> str:
    """L = 10^k, L = 30 or L = ∞, for a legend."""
    if math.isinf(length):
        return r"$L=\infty$"
    power = math.log10(length)
    whole = length >= 100 and abs(power - round(power)) < 1e-9
    return f"$L=10^{{{power:.0f}}}$" if whole else f"$L={length:g}$"


def given_axes(axes: Axes | None) -> Axes:
    """The axes to draw on: those given, or new ones in the house style."""
    from matplotlib.axes import Axes as Kind

    if axes is None:
        import matplotlib.pyplot as plt

        with house_style():
            return plt.subplots(figsize=(4.8, 3.2))[1]
    if not isinstance(axes, Kind):
        given, remedy = type(axes).__name__, "Use figure, axes = plt.subplots()."
        raise InvalidArgumentError("axes", given, "axes of matplotlib, or None", remedy)
    return axes


def array(value: Any) -> NDArray[Any]:
    """A tensor or an array as an array of NumPy."""
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def draw_errors(
    axes: Axes | None, lengths: Any, errors: Any, spread: Any = None, **line: Any
) -> Axes:
    """Draw errors (length, ...) against prompt lengths: one curve an entry of the batch.

    Each curve takes the next color and marker of the axes; ``spread`` (length, ...) gives error
    bars. Logarithmic axes have no place for an infinite length and an error of 0.
    """
    axes = given_axes(axes)
    label, drawn = line.pop("label", None), len(axes.containers)
    x = np.atleast_1d(array(lengths)).astype(np.float64)
    columns = array(errors).reshape(len(x), -1)
    bars = np.zeros_like(columns) if spread is None else array(spread).reshape(len(x), -1)
    for i, (column, bar) in enumerate(zip(columns.T, bars.T, strict=True)):
        shown = np.isfinite(x) & np.isfinite(column) & (column > 0)
        # an error bar that reaches 0 would have no end
        bar = None if spread is None else np.stack([np.minimum(bar, 0.999 * column), bar])[:, shown]
        look = {"color": COLORS[drawn + i], "marker": MARKERS[drawn + i]} | line
        axes.errorbar(x[shown], column[shown], bar, label=None if i else label, **look)
    axes.set(xscale="log", yscale="log")
    axes.set(xlabel="prompt length $L$", ylabel="root mean squared error")
    if label is not None:
        axes.legend(fontsize="small")
    return axes


def draw_paths(
    axes: Axes | None, times: Any, paths: Any, lengths: Any, *, named: bool = True, **line: Any
) -> Axes:
    """Draw curves (length, time) or (length, time, several) against time.

    One color for each length, black for the infinite prompt; what is drawn later on the same axes
    has the next dash.
    """
    axes = given_axes(axes)
    drawn = {gid for each in axes.lines if (gid := each.get_gid())}
    look = {"ls": DASHES[len(drawn)], "gid": f"paths {len(drawn)}"} | line
    every = zip(np.atleast_1d(array(lengths)), array(paths), strict=True)
    for i, (length, path) in enumerate(every):
        color = "black" if math.isinf(length) else COLORS[i]
        for j, curve in enumerate(np.atleast_2d(path.T)):
            label = length_label(length) if named and not j else None
            shown: dict[str, Any] = {"color": color, "label": label} | look
            axes.plot(array(times), curve, **shown)
    axes.set_xlabel("time $t$")
    if named:
        axes.legend(fontsize="small")
    return axes
