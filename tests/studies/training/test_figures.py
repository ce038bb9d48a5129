"""The figures of training on long prompts draw the data."""

from study_checks import drawn, figures_are_complete

from largeprompt.studies.training.figures import drift, excess, gradients, tube
from largeprompt.studies.training.study import STUDY


def test_figures_draw_the_data(data):
    left, right = tube.draw(data).axes
    assert drawn(left, data.softmax_distance[0, 1:])
    assert drawn(right, data.linear_envelope.max("time"))
    left, right = gradients.draw(data).axes
    assert drawn(left, 1 - data.softmax_gradient_cosine[1])
    assert drawn(right, data.linear_gradient_distance[0])
    assert drawn(excess.draw(data).axes[0], data.softmax_best[0])
    assert drawn(drift.draw(data).axes[0], data.drift_b[-1])
    figures_are_complete(STUDY, data)
