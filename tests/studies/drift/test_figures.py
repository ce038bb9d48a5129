"""C5: the figure of the drift draws every length."""

import pytest
from study_checks import drawn, figures_are_complete

from largeprompt.studies.drift.figures import drift
from largeprompt.studies.drift.study import STUDY


def test_figure_draws_every_length(data):
    left, right = drift.draw(data).axes
    for i in range(3):
        assert drawn(left, data.b.isel(length=i, time=slice(1, None)))
    assert drawn(left, data.optimal_b[:1])
    assert float(data.predicted_b) == pytest.approx(3**0.25)
    assert len(right.lines) == 3
    figures_are_complete(STUDY, data)
