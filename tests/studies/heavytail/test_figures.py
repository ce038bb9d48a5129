"""N3: the figures of the heavy-tail study draw what the data says."""

import numpy as np
from study_checks import drawn, figures_are_complete

from largeprompt.studies.heavytail.figures import breakdown
from largeprompt.studies.heavytail.study import STUDY


def test_figures_draw_what_the_data_says(data):
    assert [figure.name for figure in STUDY.drawable(data)] == [
        "tails",
        "breakdown",
        "heavy_training",
    ]
    assert all(
        axes.get_ylabel() for figure in STUDY.drawable(data) for axes in figure.draw(data).axes
    )
    figures_are_complete(STUDY, data)
    assert drawn(breakdown.draw(data).axes[0], np.asarray(data.breakdown[0]))
