"""C3: the figure of exponents draws the exact ones, with and without the logarithm."""

from study_checks import drawn, figures_are_complete

from largeprompt.studies.exponent.figures import exponent
from largeprompt.studies.exponent.formulas import without_logarithm
from largeprompt.studies.exponent.study import STUDY


def test_exponent_figure(data):
    one, four = exponent.draw(data).axes
    assert drawn(one, data.exponent.sel(dim=1, decade_end=10))
    assert drawn(four, data.exponent.sel(dim=4, decade_end=9))
    assert drawn(four, without_logarithm(data).sel(dim=4).where(data.square >= 0.5))


def test_figures_are_complete(data):
    figures_are_complete(STUDY, data)
