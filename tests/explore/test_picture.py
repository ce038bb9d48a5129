"""Small plots: places, ticks, words, and text that stays text."""

from xml.etree import ElementTree

import numpy as np

from largeprompt.explore.picture import HEIGHT, LEFT, RIGHT, WIDTH, Picture, Scale, decades
from largeprompt.explore.text import power_of_ten


def test_places_on_both_scales():
    np.testing.assert_allclose(Scale(0, 10, start=5, end=25)([0, 5, 10]), [5, 15, 25])
    np.testing.assert_allclose(Scale(1, 100, True, 200, 0)([1, 10, 100]), [200, 100, 0])
    assert not np.isfinite(Scale(1, 100, True)([0.0, -1.0])).any()


def test_ticks_are_round_and_few():
    assert [label for _, label in Scale(0, 4).ticks] == ["0", "1", "2", "3", "4"]
    assert [label for _, label in Scale(-6.75, 9.0).ticks] == ["−5", "0", "5"]
    assert [label for _, label in Scale(1, 1e7, True).ticks] == ["1", "10²", "10⁴", "10⁶"]
    assert power_of_ten(-3) == "10⁻³"


def test_a_picture_is_well_formed_and_in_its_frame():
    axes = Picture(Scale(1, 1e4, True), Scale(1e-3, 1, True), "x < y", "y & z")
    axes.line([1, 10, 100], [1, np.nan, 1e-3], "c0")
    axes.bars([10, 100], [0.05, 1e-9], [0.15, 0.03], "c1")
    axes.dots([10, 100], [0.1, 0.01], "c1", "dots & bars", words=["<b>", "two"])
    axes.area([1, 1e4], [0.1, 0.1], "c2")
    axes.text(10, 0.1, "a < b", "on-map")
    axes.level(0.5, "here")
    axes.upright(100, "here")
    root = ElementTree.fromstring(axes.svg('quoted "words"'))
    assert root.attrib["aria-label"] == 'quoted "words"'
    assert "x < y" in [node.text for node in root.iter("text")]
    assert [node.text for node in root.iter("title")] == ["<b>", "two"]
    assert axes.legend == [("c1", "dots & bars")]
    assert "dots &amp; bars" in axes.card("name", "title")
    inner = root.find("svg")
    line = next(node for node in inner if node.attrib["class"] == "line c0")
    width = WIDTH - LEFT - RIGHT
    # NaN breaks the line
    assert line.attrib["d"] == f"M0.0 0.0M{width / 2:.1f} {float(inner.attrib['height']):.1f}"
    assert all(
        0 <= float(node.attrib["cx"]) <= width and 0 <= float(node.attrib["cy"]) <= HEIGHT
        for node in inner.iter("circle")
    )


def test_decades_around_what_is_positive():
    assert decades([0.02, 3.0], np.nan, [0.0, -1.0]) == (0.01, 10.0)
    assert decades([np.nan]) == (0.1, 10.0)
    assert decades([1.0]) == (1.0, 10.0)
