"""The figures draw the data."""

import numpy as np
from study_checks import drawn, figures_are_complete

from largeprompt.studies.languagemodel.figures import length, pays
from largeprompt.studies.languagemodel.study import STUDY


def test_length_figure_draws_the_data(data):
    left, right = length.draw(data).axes
    for first in data["first"].values:
        one = data.sel(first=first)
        assert drawn(left, one.affine_error.median(["layer", "head"]).mean("text"))
        assert drawn(right, (one.affine_error <= 0.2).sum(["layer", "head"]).mean("text"))


def test_pays_figure_draws_the_loss(data):
    _, right = pays.draw(data).axes
    change = 100 * (data.state_change / data.loss).mean("text")
    for count in data.components.values:
        assert drawn(right, np.asarray(change.sel(components=count, replaced_recent=4)))


def test_figures_are_complete(data):
    figures_are_complete(STUDY, data)
