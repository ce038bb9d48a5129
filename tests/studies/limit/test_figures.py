"""C1, C2: the figures of the limit draw the data."""

import numpy as np
import pytest
import xarray as xr
from study_checks import drawn, figures_are_complete

from largeprompt.studies.limit.figures import identity, limit
from largeprompt.studies.limit.study import STUDY


@pytest.fixture
def two_laws():
    lengths = [10, 100, 1000]
    mse = np.array([[1.0, 0.1, 0.01], [0.5, 0.05, 0.005]])
    grid = ("law", "length")
    return xr.Dataset(
        {"mse": (grid, mse), "affine_mse": (grid, mse + 0.04), "first_order_mse": (grid, 1.1 * mse), "gap": ("law", [0.0, 0.2])},
        coords={"law": ["Gaussian", "other"], "length": lengths},
    )


def test_limit_figure_draws_the_data(two_laws):
    left, right = limit.draw(two_laws).axes
    markers = [line for line in left.lines if line.get_marker() != "None" and len(line.get_xdata())]
    np.testing.assert_allclose(markers[1].get_ydata(), np.sqrt(two_laws.mse.sel(law="other")))
    levels = [line for line in right.lines if line.get_linestyle() == ":" and len(line.get_ydata()) == 2]
    assert [line.get_ydata()[0] for line in levels] == [0.2]  # no level for a law without a gap
    for axes in (left, right):
        assert [text.get_text() for text in axes.get_legend().get_texts()][:2] == ["Gaussian", "other"]


def test_identity_figure(data):
    left, right = identity.draw(data).axes
    assert drawn(left, np.maximum(data.identity_error.sel(kind="mixture"), 1e-17))
    assert drawn(right, data.control_gap.sel(control="Laplace"))
    assert drawn(right, data.control_gap_quadrature.sel(control="Laplace"))


def test_figures_are_complete(data):
    figures_are_complete(STUDY, data)
