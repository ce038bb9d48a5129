"""The figures draw the data."""

import numpy as np
from study_checks import drawn, figures_are_complete

from largeprompt.studies.real_models.figures import language, states, tables, temperature
from largeprompt.studies.real_models.study import STUDY


def test_heads_are_drawn_against_the_length(data):
    left, right = language.draw(data).axes
    assert drawn(left, data.affine_error.median(["layer", "head"]).mean("text"))
    assert drawn(right, (data.affine_error <= 0.2).sum(["layer", "head"]).mean("text"))


def test_losses_are_drawn_against_the_heads_replaced(data):
    (axes,) = states.draw(data).axes
    change = 100 * (data.state_change / data.loss).mean("text")
    for state in data.state.values:
        assert drawn(axes, np.asarray(change.sel(state=state, recent=4)))


def test_factors_are_drawn_less_the_loss_without_one(data):
    (axes,) = temperature.draw(data).axes
    change = (data.long_loss - data.long_loss.sel(scaling="none")).mean("long_text")
    assert drawn(axes, change.sel(longer=2)[1:])


def test_errors_of_tables_are_drawn_by_layer(data):
    ratio = np.sqrt(data.table_found / data.table_law).median("table_head")
    for axes, kind in zip(tables.draw(data).axes, ("two classes", "regression"), strict=True):
        assert drawn(axes, ratio.sel(kind=kind, table_layer=0))


def test_figures_are_complete(data):
    figures_are_complete(STUDY, data)
