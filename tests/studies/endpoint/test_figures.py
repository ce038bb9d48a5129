"""C6: the figure of the end points draws the data."""

import numpy as np

from largeprompt.runs.style import house_style
from largeprompt.studies.endpoint.figures import endpoint


def test_figure_draws_the_data(data):
    figure = endpoint.draw(data)
    left, _ = figure.axes
    np.testing.assert_allclose(
        left.lines[0].get_xdata(), data.b.sel(start="balanced") / data.theorem_b
    )
    with house_style():
        figure.draw_without_rendering()
