"""Figures are tested on what they draw, not on pixels."""

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr

from largeprompt.report.figures.convergence import convergence_figure
from largeprompt.report.figures.drift import drift_figure
from largeprompt.report.figures.exponent import exponent_figure
from largeprompt.report.figures.finite_error import finite_error_figure
from largeprompt.report.figures.phase_diagram import phase_diagram_figure
from largeprompt.report.figures.sharpness import sharpness_figure
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


@pytest.fixture(scope="module")
def finite():
    from largeprompt.experiments.finite_error import FiniteErrorConfig, run

    return run(FiniteErrorConfig(points=9, sampled_lengths=(3, 30), replicas=50))


def test_finite_error_figure_draws_the_data(finite):
    figure = finite_error_figure(finite)
    assert len(figure.axes) == 3
    curves = {line.get_label(): line for line in figure.axes[1].lines}
    np.testing.assert_allclose(curves["exact"].get_ydata(), finite.exact.sel(score_variance=2.0))
    np.testing.assert_allclose(curves["certified"].get_ydata(), finite.certified.sel(score_variance=2.0))
    assert "c_1" in figure.axes[1].get_title()


def test_phase_and_exponent_and_sharpness_figures():
    from largeprompt.experiments import exponent, phase_diagram, sharpness

    phase = phase_diagram.run(phase_diagram.PhaseDiagramConfig(variances=9, lengths=9))
    axes = phase_diagram_figure(phase).axes[0]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), np.exp(2 * phase.score_variance))
    assert {text.get_text() for text in axes.texts} >= {"linear", "heavy", "frozen"}
    decay = exponent.run(exponent.ExponentConfig(squares=(0.3, 1.0), dims=(1,), decades=(2, 6, 10)))
    lines = exponent_figure(decay).axes[0].lines
    np.testing.assert_allclose(lines[2].get_ydata(), decay.exponent.sel(dim=1, decade_end=6))
    sharp = sharpness.run(sharpness.SharpnessConfig(variances=(0.5,), tilts=(0.7,), points=5))
    left, right = sharpness_figure(sharp).axes
    np.testing.assert_allclose(left.lines[0].get_ydata(), sharp.ratio[0])
    np.testing.assert_allclose(right.lines[0].get_ydata(), sharp.ratio[1])


def test_drift_figure_draws_every_length():
    from largeprompt.experiments import drift

    data = drift.run(drift.DriftConfig(lengths=(100.0, float("inf")), until=20.0, times=9, points=64))
    left, right = drift_figure(data).axes
    np.testing.assert_allclose(left.lines[1].get_ydata(), data.b.isel(length=1, time=slice(1, None)))
    assert float(data.predicted_b) == pytest.approx(3**0.25)
    assert len(right.lines) == 2
