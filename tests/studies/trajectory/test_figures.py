"""E2: the figures of the tube, the parameters and the excess risk draw the data."""

import numpy as np
from study_checks import figures_are_complete

from largeprompt.studies.trajectory.figures import excess, parameters, tube
from largeprompt.studies.trajectory.study import STUDY


def test_figures_draw_the_data(tubes):
    left, right = tube.draw(tubes).axes
    np.testing.assert_allclose(left.lines[0].get_ydata(), tubes.softmax_distance[0, 1:])
    np.testing.assert_allclose(right.lines[3].get_ydata(), tubes.linear_envelope.max("time"))
    panels = parameters.draw(tubes).axes
    assert [axes.get_title() for axes in panels] == ["$A_{11}$", "$A_{12}$", "$b$"]
    np.testing.assert_allclose(
        excess.draw(tubes).axes[0].lines[0].get_ydata(), tubes.softmax_best[0]
    )
    figures_are_complete(STUDY, tubes)
