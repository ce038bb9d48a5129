"""Figures are tested on what they draw, not on pixels."""

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr

from largeprompt.report.figures.convergence import convergence_figure
from largeprompt.report.figures.style import save


@pytest.fixture
def data():
    lengths = [10, 100, 1000]
    mse = np.array([[1.0, 0.1, 0.01], [0.5, 0.05, 0.005]])
    grid = ("law", "length")
    return xr.Dataset(
        {
            "mse": (grid, mse),
            "affine_mse": (grid, mse + 0.04),
            "first_order_mse": (grid, 1.1 * mse),
            "gap": ("law", [0.0, 0.2]),
        },
        coords={"law": ["Gaussian", "other"], "length": lengths},
    )


def test_convergence_figure_draws_the_data(data):
    left, right = convergence_figure(data).axes
    markers = [line for line in left.lines if line.get_marker() != "None" and len(line.get_xdata())]
    np.testing.assert_allclose(markers[1].get_ydata(), np.sqrt(data.mse.sel(law="other")))
    levels = [line for line in right.lines if line.get_linestyle() == ":" and len(line.get_ydata()) == 2]
    assert [line.get_ydata()[0] for line in levels] == [0.2]  # no level for a law without a gap
    for axes in (left, right):
        assert axes.get_xlabel()
        assert axes.get_ylabel()
        assert [text.get_text() for text in axes.get_legend().get_texts()][:2] == ["Gaussian", "other"]


def test_saving_writes_png_and_pdf_and_leaves_settings_alone(data, tmp_path):
    before = dict(mpl.rcParams)
    paths = save(convergence_figure(data), tmp_path / "new", "figure")
    assert [path.suffix for path in paths] == [".png", ".pdf"]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert paths[1].read_bytes().startswith(b"%PDF")
    assert dict(mpl.rcParams) == before
