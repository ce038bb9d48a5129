"""Figures are rendered as PNG and PDF, and leave the settings of matplotlib alone."""

import matplotlib as mpl
import xarray as xr
from matplotlib.figure import Figure

from largeprompt.runs.style import curves, describe, house_style, marks, rendered, ticks


def test_rendering_gives_png_and_pdf_and_leaves_settings_alone():
    before = dict(mpl.rcParams)
    with house_style():
        figure = Figure()
        figure.subplots().plot([1, 2], [3, 4])
    files = rendered(figure)
    assert list(files) == ["png", "pdf"]
    assert files["png"].startswith(b"\x89PNG")
    assert files["pdf"].startswith(b"%PDF")
    assert dict(mpl.rcParams) == before


def test_axes_get_labels_scales_legend_and_ticks():
    axes = Figure().subplots()
    for i, length, curve in curves(xr.Dataset({"y": (("length", "x"), [[1.0, 2.0], [3.0, 4.0]])}, {"length": [10, 20]}), "length"):
        marks(axes, i, [1, 10], curve.y, 0.1, f"L = {length}")
    describe(axes, "x", "y", "title", log="xy", legend=7, loc="upper left", ylim=(0.5, 9))
    ticks(axes, "y", (1, 2, 5))
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == ("x", "y", "title")
    assert (axes.get_xscale(), axes.get_yscale(), axes.get_ylim()) == ("log", "log", (0.5, 9))
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["L = 10", "L = 20"]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["1", "2", "5"]
