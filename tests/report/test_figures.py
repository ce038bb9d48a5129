"""Figures are tested on what they draw, not on pixels."""

import math

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr

from largeprompt.report.catalogue import figures
from largeprompt.runs.style import house_style, save
from largeprompt.studies.anisotropy.figures import collapse_figure, spectrum_constants_figure
from largeprompt.studies.anisotropy.study import AnisotropyConfig
from largeprompt.studies.convergence.figures import constants_figure, convergence_figure
from largeprompt.studies.convergence.study import ConvergenceConfig, paper_form
from largeprompt.studies.drift.figures import drift_figure
from largeprompt.studies.drift.study import DriftConfig
from largeprompt.studies.exponent.figures import exponent_figure
from largeprompt.studies.exponent.study import ExponentConfig
from largeprompt.studies.limit.figures import identity_figure, limit_figure
from largeprompt.studies.limit.study import LimitConfig
from largeprompt.studies.phase_diagram.figures import phase_diagram_figure
from largeprompt.studies.phase_diagram.study import PhaseDiagramConfig
from largeprompt.studies.registry import study
from largeprompt.studies.sharpness.figures import sharpness_figure
from largeprompt.studies.sharpness.study import SharpnessConfig
from largeprompt.studies.shortcontext.figures import regression_figure, short_figure
from largeprompt.studies.shortcontext.study import ShortContextConfig

CONFIGS = {
    "limit": LimitConfig(dims=(1, 4), layers=1, lengths=(10, 100), tokens_per_length=1000),
    "convergence": ConvergenceConfig(
        points=9, sampled_lengths=(1, 3, 10, 30), fitted=(3, 30), replicas=20, bootstraps=20, score_variances=(0.5, 2.0)
    ),
    "exponent": ExponentConfig(squares=(0.3, 1.0), dims=(1, 4), decades=(2, 4, 6)),
    "phase_diagram": PhaseDiagramConfig(variances=9, lengths=9),
    "sharpness": SharpnessConfig(variances=(0.5,), tilts=(0.7,), points=5),
    "drift": DriftConfig(lengths=(100.0, math.inf), until=20.0, times=9, points=64),
    "anisotropy": AnisotropyConfig(
        dim=3,
        spectra=("condition 1", "condition 1e4"),
        points=9,
        replicas=5,
        sampled_lengths=(10,),
        spikes=(0.5,),
        decades=(2, 4, 5),
    ),
    "shortcontext": ShortContextConfig(
        dims=(1, 4),
        score_variances=(0.5, 2.0),
        conditions=(1.0, 1e4),
        regression_dim=2,
        regression_conditions=(1.0, 1e4),
        per_decade=1,
        regression_per_decade=1,
        points=64,
    ),
}


@pytest.fixture(scope="module")
def datasets():
    return {name: study(name).run(config) for name, config in CONFIGS.items()}


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


def labelled(axes):
    """Lines of the axes by their label."""
    return {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}


def drawn(axes, values):
    """Whether some line of the axes has these values."""
    values = np.asarray(values)
    return any(
        len(line.get_ydata()) == len(values) and np.allclose(line.get_ydata(), values, equal_nan=True) for line in axes.lines
    )


def test_limit_figure_draws_the_data(data):
    left, right = limit_figure(data).axes
    markers = [line for line in left.lines if line.get_marker() != "None" and len(line.get_xdata())]
    np.testing.assert_allclose(markers[1].get_ydata(), np.sqrt(data.mse.sel(law="other")))
    levels = [line for line in right.lines if line.get_linestyle() == ":" and len(line.get_ydata()) == 2]
    assert [line.get_ydata()[0] for line in levels] == [0.2]  # no level for a law without a gap
    for axes in (left, right):
        assert [text.get_text() for text in axes.get_legend().get_texts()][:2] == ["Gaussian", "other"]


def test_saving_writes_png_and_pdf_and_leaves_settings_alone(data, tmp_path):
    before = dict(mpl.rcParams)
    paths = save(limit_figure(data), tmp_path / "new", "figure")
    assert [path.suffix for path in paths] == [".png", ".pdf"]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert paths[1].read_bytes().startswith(b"%PDF")
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize("name", CONFIGS)
def test_every_figure_of_the_catalogue_is_drawn_with_labelled_axes_and_a_caption(name, datasets):
    entries = figures(name)
    assert 1 <= len(entries) <= 4
    assert len({entry.name for entry in entries}) == len(entries)
    for entry in entries:
        figure = entry.draw(datasets[name])
        with house_style():
            figure.draw_without_rendering()  # warnings are errors: empty legends, layout
        panels = [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]
        assert any(axes.get_xlabel() for axes in panels)
        assert all(
            axes.get_xlabel() or axes.get_subplotspec().rowspan.stop < axes.get_subplotspec().get_gridspec().nrows
            for axes in panels
        )
        assert entry.caption.endswith(".")
        assert len(entry.caption) > 60


def test_identity_figure(datasets):
    data = datasets["limit"]
    left, right = identity_figure(data).axes
    assert drawn(left, np.maximum(data.identity_error.sel(kind="mixture"), 1e-17))
    assert drawn(right, data.control_gap.sel(control="Laplace"))
    assert drawn(right, data.control_gap_quadrature.sel(control="Laplace"))


def test_convergence_figures(datasets):
    data = datasets["convergence"]
    axes = convergence_figure(data).axes
    assert len(axes) == 4
    for panel, quantity, logs in ((axes[1], "output", 1), (axes[3], "jacobian_u", 2)):
        part = data.sel(score_variance=2.0, quantity=quantity)
        curves = labelled(panel)
        np.testing.assert_allclose(curves["exact"].get_ydata(), part.exact)
        np.testing.assert_allclose(curves["certified"].get_ydata(), part.certified)
        c1, c2 = (float(part[name].sel(interval="estimate")) for name in ("c1", "c2"))
        form = paper_form(data.length.values[1:], 2.0, c1, c2, logs)
        np.testing.assert_allclose(curves["paper's form, fitted"].get_ydata()[1:], form)
        assert "c_1" in panel.get_title()
    slope, second, first = constants_figure(data).axes
    for panel, name in ((slope, "slope"), (second, "c2"), (first, "c1")):
        assert drawn(panel, data[name].sel(quantity="jacobian_u", interval="estimate"))


def test_phase_and_exponent_and_sharpness_figures(datasets):
    phase, decay, sharp = (datasets[name] for name in ("phase_diagram", "exponent", "sharpness"))
    axes = phase_diagram_figure(phase).axes[0]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), np.exp(2 * phase.score_variance))
    assert {text.get_text() for text in axes.texts} >= {"linear", "heavy", "frozen"}
    one, four = exponent_figure(decay).axes
    assert drawn(one, decay.exponent.sel(dim=1, decade_end=6))
    assert drawn(four, decay.exponent.sel(dim=4, decade_end=4))
    left, right = sharpness_figure(sharp).axes
    np.testing.assert_allclose(left.lines[0].get_ydata(), sharp.ratio[0])
    np.testing.assert_allclose(right.lines[0].get_ydata(), sharp.ratio[1])


def test_corrected_exponents_are_those_of_the_study(datasets):
    """The figure, which may not import the study, takes the same logarithm off."""
    from largeprompt.studies.exponent.study import without_logarithm

    decay = datasets["exponent"]
    corrected = without_logarithm(decay, 4).where(decay.square >= 0.5)
    assert drawn(exponent_figure(decay).axes[1], corrected)


def test_drift_figure_draws_every_length(datasets):
    data = datasets["drift"]
    left, right = drift_figure(data).axes
    for i in range(2):
        assert drawn(left, data.b.isel(length=i, time=slice(1, None)))
    assert drawn(left, data.optimal_b[:1])
    assert float(data.predicted_b) == pytest.approx(3**0.25)
    assert len(right.lines) == 2


def test_anisotropy_figures(datasets):
    data = datasets["anisotropy"]
    part = data.sel(score_variance=2.0, spectrum="condition 1e4", direction="weak")
    left, middle, right = collapse_figure(data).axes
    assert drawn(left, part.exact * data.length)
    assert drawn(middle, np.sqrt(part.exact / part["size"]))
    assert drawn(right, part.exact * data.length / (part.trace + part["size"]))
    second, first, exponents = spectrum_constants_figure(data).axes
    chosen = data.sel(score_variance=2.0, direction="strong")
    for panel, name in ((second, "c2"), (first, "c1")):
        assert any(np.array_equal(line.get_xdata(), chosen[name]) for line in panel.lines)
    assert drawn(exponents, data.random_exponent.isel(decade_end=-1))


def test_shortcontext_figures(datasets):
    data = datasets["shortcontext"]
    left, middle, right = short_figure(data).axes
    near = data.sel(length=slice(1, 30))
    case = int(np.flatnonzero((near.dim.values == 4) & (near.score_variance.values == 2.0) & (near.direction.values == "any"))[0])
    one = near.isel(case=case)
    assert drawn(left, np.sqrt(one.exact / one["size"]))
    assert drawn(middle, one.first_order / one.exact)
    weak = (near.condition.values == 1e4) & (near.score_variance.values == 2.0) & (near.direction.values == "weak")
    one = near.isel(case=int(np.flatnonzero(weak)[0]))
    assert drawn(right, np.sqrt(one.exact / one["size"]))
    softmax, linear = regression_figure(data).axes
    assert drawn(softmax, data.risk.sel(attention="softmax", regression_condition=1e4))
    assert drawn(linear, data.risk.sel(attention="linear", regression_condition=1e4))
