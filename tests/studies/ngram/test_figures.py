"""Q3: figures of the study of in-context Markov chains show its numbers."""

import numpy as np

from largeprompt.runs.style import house_style
from largeprompt.studies.ngram.figures import FIGURES


def drawn_in(axes, values):
    values = np.asarray(values)
    lines = [np.asarray(line.get_ydata(), dtype=np.float64) for line in axes.lines]
    return any(
        len(line) == len(values) and np.allclose(line, values, equal_nan=True) for line in lines
    )


def test_figures_draw_predictions_and_data(data):
    drawn_figures = [(entry, entry.draw(data)) for entry in FIGURES]
    for entry, figure in drawn_figures:
        with house_style():
            figure.draw_without_rendering()
        assert all(axes.get_xlabel() and axes.get_ylabel() for axes in figure.axes)
        assert entry.caption.endswith(".")
    paths, training, operator = (figure.axes for _, figure in drawn_figures)
    left, middle, right = paths
    one = data.sel(case="2 symbols, order 2", query="last").isel(beta=1)
    assert drawn_in(left, one.mse)
    assert drawn_in(left, one.constant / data.length)
    assert drawn_in(
        middle, (data.extrapolated / data.constant).sel(beta=2.0).stack(pair=("case", "query"))
    )
    assert drawn_in(right, (data.mixing_curve / data.mixing_curve_independent).sel(mixing_beta=6.0))
    left, middle, right = training
    first = data.sel(training_order=1)
    assert drawn_in(middle, first.best_beta_predicted)
    assert drawn_in(middle, first.best_beta_exact)
    early = first.sel(time=slice(0, float(data.tube_until)))
    assert drawn_in(right, abs(early.beta_exact - early.beta_infinite).max("time"))
    left, middle, right = operator
    assert drawn_in(left, data.affine_gap.isel(case=1))
    assert drawn_in(middle, data.infinite_risk.isel(concentration=0))
    saved = data.sel(predictor="posterior mean").isel(concentration=0)
    assert drawn_in(right, saved.saved / saved.saved_predicted)
