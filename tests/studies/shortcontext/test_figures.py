"""F1: the figures of short prompts draw errors and risks."""

import numpy as np
from study_checks import drawn, figures_are_complete

from largeprompt.studies.shortcontext.figures import regression, short
from largeprompt.studies.shortcontext.study import STUDY


def test_shortcontext_figures(data):
    left, middle, right = short.draw(data).axes
    near = data.sel(length=slice(1, 30))
    case = int(
        np.flatnonzero(
            (near.dim.values == 4)
            & (near.score_variance.values == 2.0)
            & (near.direction.values == "any")
        )[0]
    )
    one = near.isel(case=case)
    assert drawn(left, np.sqrt(one.exact / one["size"]))
    assert drawn(middle, one.first_order / one.exact)
    weak = (
        (near.condition.values == 1e4)
        & (near.score_variance.values == 2.0)
        & (near.direction.values == "weak")
    )
    one = near.isel(case=int(np.flatnonzero(weak)[0]))
    assert drawn(right, np.sqrt(one.exact / one["size"]))
    softmax, linear = regression.draw(data).axes
    assert drawn(softmax, data.risk.sel(attention="softmax", regression_condition=1e4))
    assert drawn(linear, data.risk.sel(attention="linear", regression_condition=1e4))


def test_figures_are_complete(data):
    figures_are_complete(STUDY, data)
