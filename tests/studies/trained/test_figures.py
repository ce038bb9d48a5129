"""Figures of the study of trained transformers show its numbers."""

import numpy as np

from largeprompt.runs.style import house_style
from largeprompt.studies.trained.figures import FIGURES


def test_figures_draw_the_data(data):
    for entry in FIGURES:
        figure = entry.draw(data)
        with house_style():
            figure.draw_without_rendering()
        assert all(axes.get_xlabel() for axes in figure.axes)
    bare, _ = FIGURES[0].draw(data).axes
    lines = [np.asarray(line.get_ydata(), dtype=float) for line in bare.lines]
    for name in ("softmax_optimum", "carried", "linear_optimum", "bayes"):
        assert any(len(each) == 2 and np.allclose(each, data[name] - data.floor) for each in lines)
    assert any(
        len(each) == 2
        and np.allclose(each, data.risk.sel(model="attention 1x1").mean("run") - data.floor)
        for each in lines
    )
