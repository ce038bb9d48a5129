"""N2: the figure of discrete training draws the data."""

from study_checks import drawn, figures_are_complete

from largeprompt.studies.discrete.figures import discrete
from largeprompt.studies.discrete.study import STUDY


def test_figures_draw_the_data(data):
    descent, sgd, authors, adam = discrete.draw(data).axes
    assert drawn(descent, data.gap[0])
    assert drawn(sgd, data.predicted_sgd_gap.sortby(data.batch_step_size / data.batch_size))
    assert drawn(authors, data.paper_law[1:])
    assert drawn(adam, data.memory_b[-1])
    figures_are_complete(STUDY, data)
