"""C3, C4, E1: the figures draw the exact law, the bounds and the fitted form."""

import numpy as np
from study_checks import drawn, figures_are_complete

from largeprompt.studies.convergence.figures import constants, convergence
from largeprompt.studies.convergence.formulas import paper_form
from largeprompt.studies.convergence.study import STUDY


def labelled(axes):
    """Lines of the axes by their label."""
    return {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}


def test_convergence_figures(data):
    axes = convergence.draw(data).axes
    assert len(axes) == 6
    for panel, quantity, logs in ((axes[1], "output", 1), (axes[4], "jacobian_u", 2)):
        part = data.sel(score_variance=2.0, quantity=quantity)
        curves = labelled(panel)
        np.testing.assert_allclose(curves["exact"].get_ydata(), part.exact)
        np.testing.assert_allclose(curves["certified"].get_ydata(), part.certified)
        c1, c2 = (float(part[name].sel(interval="exact")) for name in ("c1", "c2"))
        form = paper_form(data.length.values[1:], 2.0, c1, c2, logs)
        np.testing.assert_allclose(curves["paper's form, fitted"].get_ydata()[1:], form)
        assert "c_1" in panel.get_title()
    slope, second, first = constants.draw(data).axes
    for panel, name in ((slope, "slope"), (second, "c2"), (first, "c1")):
        assert drawn(panel, data[name].sel(quantity="jacobian_u", interval="exact"))


def test_figures_are_complete(data):
    figures_are_complete(STUDY, data)
