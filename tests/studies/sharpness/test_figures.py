"""C3: the figure of certificates draws the ratios of both laws."""

import numpy as np
from study_checks import figures_are_complete

from largeprompt.studies.sharpness.figures import sharpness
from largeprompt.studies.sharpness.study import STUDY


def test_sharpness_figure(data):
    left, right = sharpness.draw(data).axes
    np.testing.assert_allclose(left.lines[0].get_ydata(), data.ratio[0])
    np.testing.assert_allclose(right.lines[0].get_ydata(), data.ratio[4])


def test_figures_are_complete(data):
    figures_are_complete(STUDY, data)
