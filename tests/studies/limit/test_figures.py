"""C1, C2: the figures of the limit draw the data."""

import numpy as np
from study_checks import drawn, figures_are_complete

from largeprompt.studies.limit.figures import identity, limit
from largeprompt.studies.limit.study import STUDY


def test_limit_figure_draws_the_data(data):
    left, right = limit.draw(data).axes
    for axes, target in ((left, "limit"), (right, "affine")):
        one = data.sel(quantity=target, law="sphere")
        assert drawn(axes, np.sqrt(one.exact))
        assert any(np.array_equal(line.get_ydata(), np.sqrt(one.drawn)) for line in axes.lines)
        assert [text.get_text() for text in axes.get_legend().get_texts()] == list(data.law.values)
    levels = [
        line.get_ydata()[0]
        for line in right.lines
        if line.get_linestyle() == ":" and len(line.get_ydata()) == 2
    ]
    # no level for the law without a gap, which comes first
    np.testing.assert_allclose(levels, data.gap[1:])


def test_identity_figure(data):
    left, right = identity.draw(data).axes
    assert drawn(left, np.maximum(data.identity_error.sel(kind="mixture"), 1e-17))
    assert drawn(right, data.control_gap.sel(control="Laplace"))
    assert drawn(right, data.control_gap_quadrature.sel(control="Laplace"))


def test_figures_are_complete(data):
    figures_are_complete(STUDY, data)
