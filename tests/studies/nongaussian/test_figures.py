"""N1: figures of the study of tokens that are not Gaussian show its numbers."""

import numpy as np

from largeprompt.studies.nongaussian.figures import families, ladder


def test_figures_draw_the_data(data):
    figure = families.draw(data)
    top = figure.axes[0]
    np.testing.assert_allclose(
        top.lines[0].get_ydata(), np.sqrt(data.mse.sel(family="Rademacher sum", tilt=1.0)[0])
    )
    scaling, cumulants, crossing, effective = ladder.draw(data).axes
    np.testing.assert_allclose(
        scaling.lines[1].get_ydata(), abs(data.scaling_gap.sel(family="Rademacher sum"))
    )
    assert all(axes.get_title() for axes in (scaling, cumulants, crossing, effective))
