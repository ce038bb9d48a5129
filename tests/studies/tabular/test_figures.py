"""The figures draw the data."""

import numpy as np
from study_checks import drawn, figures_are_complete

from largeprompt.studies.tabular.figures import law, risk
from largeprompt.studies.tabular.study import STUDY


def test_law_figure_draws_the_data(data):
    ratio = np.sqrt(data.found / data.law)
    for axes, kind in zip(law.draw(data).axes, ("two classes", "regression"), strict=True):
        assert drawn(axes, ratio.sel(kind=kind).isel(layer=0).median("head"))


def test_risk_figure_draws_the_exact_optima(data):
    left, _ = risk.draw(data).axes
    assert drawn(left, data.one_softmax)
    assert drawn(left, data.sel(kind="regression").bayes_squared_error)


def test_figures_are_complete(data):
    figures_are_complete(STUDY, data)
