"""N3: the figures of the heavy-tail study draw what the data says."""

from study_checks import drawn, figures_are_complete

from largeprompt.studies.heavytail.figures import breakdown, tails
from largeprompt.studies.heavytail.study import STUDY


def test_figures_draw_what_the_data_says(data):
    left, middle, _ = tails.draw(data).axes
    assert drawn(left, 1 / data.curve[1])
    assert drawn(middle, data.curve[-1])
    left, right = breakdown.draw(data).axes
    assert drawn(left, data.breakdown[0])
    assert drawn(right, data.least_risk[:2])
    figures_are_complete(STUDY, data)
