"""C3: the phase diagram draws the borders of the regimes."""

import numpy as np
from study_checks import figures_are_complete

from largeprompt.studies.phase_diagram.figures import phase_diagram
from largeprompt.studies.phase_diagram.study import STUDY


def test_phase_diagram_figure(data):
    axes = phase_diagram.draw(data).axes[0]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), np.exp(2 * data.score_variance))
    assert {text.get_text() for text in axes.texts} >= {"linear", "heavy", "frozen"}


def test_figures_are_complete(data):
    figures_are_complete(STUDY, data)
