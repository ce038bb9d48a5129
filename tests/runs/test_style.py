"""Figures are rendered as PNG and PDF, and leave the settings of matplotlib alone."""

import io

import matplotlib as mpl
import pytest
import xarray as xr
from matplotlib.figure import Figure
from PIL import Image

from largeprompt.runs.style import (
    curves,
    describe,
    entry,
    house_style,
    marks,
    panels,
    quiet_ticks,
    rendered,
    ticks,
)


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


def test_a_png_has_few_colors_and_cards_have_one_panel_each():
    """Pillow reads the pictures back: a palette, the size of a card, and the color of the one
    curve of each.
    """
    figure = Figure(figsize=(6, 3))
    for axes, color in zip(figure.subplots(1, 2), ("red", "blue"), strict=True):
        axes.plot([1, 2], [3, 4], color=color, lw=6, label="curve")
        axes.legend()
    files = rendered(figure, {"C1": 1, "C2": -2, "C3": 7})
    assert list(files) == ["png", "pdf", "C1.png", "C2.png", "C3.png"]
    pictures = {
        name: Image.open(io.BytesIO(content)) for name, content in files.items() if name != "pdf"
    }
    assert {picture.mode for picture in pictures.values()} == {"P"}
    seen = {
        name: {color for _, color in picture.convert("RGB").getcolors(1 << 16)}
        for name, picture in pictures.items()
    }
    red, blue = (255, 0, 0), (0, 0, 255)
    assert {red, blue} <= seen["png"]
    assert [(red in seen[name], blue in seen[name]) for name in ("C1.png", "C2.png", "C3.png")] == [
        (False, True),
        (True, False),
        (True, False),  # a panel that is not there: the first
    ]
    assert pictures["C1.png"].width < pictures["png"].width / 2


@pytest.mark.parametrize(
    ("limits", "numbers"),
    [
        ((0.04, 0.7), ["0.05", "0.1", "0.2", "0.5"]),
        ((1.1, 1.9), ["1.2", "1.5"]),
        ((20, 90), ["20", "25", "30", "40", "50", "60", "80"]),
        ((14.68, 15.83), ["14.7", "15", "15.3", "15.6"]),
    ],
)
def test_a_logarithmic_axis_with_one_power_of_ten_has_other_numbers(limits, numbers):
    figure = Figure()
    axes = figure.subplots()
    axes.set(yscale="log", ylim=limits, xscale="log", xlim=(1, 1e4))
    quiet_ticks(figure)
    figure.draw_without_rendering()
    assert [text.get_text() for text in axes.get_yticklabels()] == numbers
    assert not any(text.get_text() for text in axes.get_xticklabels(minor=True))


def test_panels_are_drawn_each_by_its_function():
    made = panels(
        "pair",
        "Two.",
        lambda data, axes: axes.plot(data.y),
        lambda data, axes: axes.plot(-data.y),
        cards={"C1": 1},
    )
    left, right = made.draw(xr.Dataset({"y": ("x", [1.0, 2.0])})).axes
    assert list(left.lines[0].get_ydata()) == [1.0, 2.0]
    assert list(right.lines[0].get_ydata()) == [-1.0, -2.0]
    assert (made.name, made.caption, made.cards) == ("pair", "Two.", {"C1": 1})


def test_a_legend_below_covers_nothing():
    figure = Figure(figsize=(4, 3), layout="constrained")
    axes = figure.subplots()
    entry(axes, "all of them", ls=":")
    describe(axes, "x", legend=7, below=2)
    figure.draw_without_rendering()
    legend, label = (each.get_window_extent() for each in (axes.get_legend(), axes.xaxis.label))
    assert legend.y1 <= label.y0 < axes.get_window_extent().y0
    assert legend.y0 >= 0
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["all of them"]


def test_axes_get_labels_scales_legend_and_ticks():
    axes = Figure().subplots()
    for i, length, curve in curves(
        xr.Dataset({"y": (("length", "x"), [[1.0, 2.0], [3.0, 4.0]])}, {"length": [10, 20]}),
        "length",
    ):
        marks(axes, i, [1, 10], curve.y, 0.1, f"L = {length}")
    describe(axes, "x", "y", "title", log="xy", legend=7, loc="upper left", ylim=(0.5, 9))
    ticks(axes, "y", (1, 2, 5))
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == ("x", "y", "title")
    assert (axes.get_xscale(), axes.get_yscale(), axes.get_ylim()) == ("log", "log", (0.5, 9))
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["L = 10", "L = 20"]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["1", "2", "5"]
