"""N2: the figures of discrete training draw the data."""

import math

import numpy as np
from study_checks import figures_are_complete

from largeprompt.studies.discrete.figures import adam, descent, sgd
from largeprompt.studies.discrete.study import STUDY


def test_figures_draw_the_data(data):
    first, second, third = descent.draw(data).axes
    softmax = data.sel(attention="softmax")
    steps = np.sort(data.step_size.values)
    assert any(
        np.allclose(line.get_ydata(), float(softmax.predicted_gap[0]) * steps)
        for line in first.lines
    )
    assert any(np.array_equal(line.get_ydata(), softmax.gap[0]) for line in first.lines)
    np.testing.assert_allclose(second.lines[0].get_ydata(), data.sharpness[0, 1:])
    np.testing.assert_allclose(
        third.lines[0].get_ydata(), data.large_sharpness[0] * data.stable_step[0] / 2
    )
    batches, wander, authors = sgd.draw(data).axes
    np.testing.assert_allclose(
        np.sort(batches.lines[0].get_ydata()), np.sort(data.predicted_sgd_gap)
    )
    np.testing.assert_allclose(wander.lines[0].get_ydata(), data.predicted_wander[0])
    np.testing.assert_allclose(authors.lines[0].get_ydata(), data.paper_law[1:])
    left, right = adam.draw(data).axes
    np.testing.assert_allclose(left.lines[1].get_ydata(), data.memory_gap[0])
    np.testing.assert_allclose(
        right.lines[0].get_ydata(), data.memory_b.isel(adam_length=-1).sel(adam_step_size=5e-3)
    )
    assert math.isclose(float(data.flow_b[-1]), right.lines[-1].get_ydata()[0])
    figures_are_complete(STUDY, data)
