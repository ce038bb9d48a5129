"""P1: the figures of the authors' experiment draw the data."""

import numpy as np

from largeprompt.runs.style import house_style
from largeprompt.studies.paper.figures import sgd, trained, training
from largeprompt.studies.paper.study import STUDY


def test_figures_draw_the_data(data):
    left, _ = trained.draw(data).axes
    np.testing.assert_allclose(
        left.lines[0].get_ydata(),
        data.risk.sel(setting="intended", attention="softmax").isel(time=-1)[:-1],
    )
    _, right = training.draw(data).axes
    np.testing.assert_allclose(
        right.lines[0].get_ydata(), data.distance.sel(setting="intended", attention="softmax")[0]
    )
    overlay, _ = sgd.draw(data).axes
    marks = [
        line for line in overlay.lines if line.get_marker() == "o" and len(line.get_xdata()) > 1
    ]
    np.testing.assert_allclose(marks[0].get_ydata(), data.sgd_risk.sel(attention="softmax")[0, 0])
    for figure in STUDY.drawable(data):
        with house_style():
            figure.draw(data).draw_without_rendering()
