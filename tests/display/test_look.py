"""Axes, labels and curves of the pictures that results draw."""

import math

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import largeprompt as lp
from largeprompt.display.look import array, draw_errors, draw_paths, given_axes, length_label


def test_lengths_in_a_legend():
    assert [length_label(x) for x in (30, 100, 1e6, math.inf)] == [
        "$L=30$",
        "$L=10^{2}$",
        "$L=10^{6}$",
        r"$L=\infty$",
    ]


def test_new_axes_leave_the_settings_alone_and_wrong_ones_are_refused():
    before = dict(mpl.rcParams)
    axes = given_axes(None)
    assert not axes.spines["top"].get_visible()
    assert dict(mpl.rcParams) == before
    plt.close(axes.figure)
    with pytest.raises(
        lp.InvalidArgumentError, match="axes: got Figure; allowed: axes of matplotlib"
    ):
        given_axes(Figure())


def test_errors_leave_out_what_a_logarithmic_axis_has_no_place_for():
    axes = draw_errors(
        Figure().subplots(),
        (1.0, 10.0, math.inf),
        torch.tensor([[2.0, 0.0], [1.0, 3.0], [0.0, 0.0]]),
        label="both",
    )
    first, second = (bars.lines[0] for bars in axes.containers)
    np.testing.assert_array_equal(first.get_xydata(), [[1.0, 2.0], [10.0, 1.0]])
    np.testing.assert_array_equal(second.get_xydata(), [[10.0, 3.0]])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["both"]
    assert axes.get_xscale() == axes.get_yscale() == "log"


def test_error_bars_stay_above_zero():
    axes = draw_errors(Figure().subplots(), [1, 2], [1.0, 0.1], [0.5, 0.4])
    (bars,) = axes.containers[0].lines[2]
    ends = np.array([segment[:, 1] for segment in bars.get_segments()])
    np.testing.assert_allclose(ends, [[0.5, 1.5], [0.1 * 0.001, 0.5]])


def test_paths_have_a_color_for_each_length_and_black_for_the_infinite_prompt():
    axes = draw_paths(
        Figure().subplots(), [0, 1], np.arange(8.0).reshape(2, 2, 2), (10.0, math.inf)
    )
    np.testing.assert_array_equal(
        [line.get_ydata() for line in axes.lines], [[0, 2], [1, 3], [4, 6], [5, 7]]
    )
    assert len({line.get_color() for line in axes.lines}) == 2
    assert axes.lines[-1].get_color() == "black"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["$L=10$", r"$L=\infty$"]


def test_arrays_from_tensors_with_a_gradient():
    np.testing.assert_array_equal(array(torch.ones(2, requires_grad=True)), [1.0, 1.0])


def test_overlaid_results_differ_in_color_and_marker():
    """An exact law, its certificate and drawn prompts on the same axes, and the law of a batch."""
    attention, mu = lp.SoftmaxAttention([[1.0]], [[1.0]]), lp.Gaussian([0.0], [[1.0]])
    lengths = [10, 100]
    axes = lp.finite_prompt(attention, mu, [1.0], lengths).plot(Figure().subplots())
    lp.certificate(attention, mu, [1.0], lengths).plot(axes)
    lp.sample_prompts(attention, mu, [1.0], lengths, 4, 0).plot(axes=axes)
    lp.finite_prompt(attention, mu, [[0.5], [2.0]], lengths).plot(axes, marker="x")
    points = [bars.lines[0] for bars in axes.containers]
    assert len({line.get_color() for line in points}) == len(points) == 5
    assert len({line.get_marker() for line in points[:3]}) == 3
    assert {line.get_marker() for line in points[3:]} == {"x"}
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["exact", "certified", "drawn", "exact"]


def test_overlaid_paths_differ_in_their_dashes():
    axes = Figure().subplots()
    for _ in range(2):
        draw_paths(axes, [0, 1], np.ones((2, 2)), (10.0, 100.0))
    first, second, third, fourth = axes.lines
    assert first.get_color() == third.get_color() != second.get_color() == fourth.get_color()
    assert first.get_linestyle() == second.get_linestyle() != third.get_linestyle()
