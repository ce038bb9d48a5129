"""The depth study in a small setting: its numbers, its rules both ways, its figures."""

import math

import numpy as np
import pytest
import torch

from largeprompt.errors import InvalidArgumentError
from largeprompt.report.catalogue import figures
from largeprompt.runs.study import quiet
from largeprompt.runs.style import house_style
from largeprompt.studies.depth import cases as depth_cases
from largeprompt.studies.depth import prompts as depth_prompts
from largeprompt.studies.depth import rules as depth_verdicts
from largeprompt.studies.depth import study as depth
from largeprompt.studies.depth.figures import band_figure, breaking_figure, normalised_figure, shown_cases
from largeprompt.studies.depth.study import STUDY, DepthConfig

F = torch.float64
SMALL = DepthConfig(
    dim=2,
    layers=4,
    spectra=("isotropic",),
    other_score_variances=(0.8,),
    degree=3,
    lengths=(16, 64, 256),
    longest=512,
    scores=1_000_000,
    replicas=(40, 200),
    fitted_from=64,
    normalised_dims=(4, 8),
    normalised_lengths=(64, 128, 256),
    reference=256,
    control_lengths=(4, 32),
    control_replicas=300,
)


@pytest.fixture(scope="module")
def data():
    return STUDY.run(SMALL)


@pytest.fixture(scope="module")
def judged(data):
    return STUDY.judge(data)


def named(verdicts, words):
    (found,) = [each for each in verdicts if words in each.asked]
    return found


def verdict(data, words):
    return named(STUDY.judge(data), words)


def test_cells_and_same_numbers_again(data):
    names = depth.cells(SMALL)
    assert len(names) == len(set(names)) == 6 + 1 + 4 + 1
    cell = next(name for name in names if "shared, V ~ 1/√N" in name)
    again = STUDY.compute(SMALL, cell, quiet)
    case = str(again.case.values[0])
    for name in ("band", "error", "level", "predicted_edge"):
        if name in again:
            one = data[name].sel(case=case)
            np.testing.assert_array_equal(
                one.dropna("length", how="all") if "length" in one.dims else one, again[name].sel(case=case)
            )


def test_verdicts_of_the_small_setting(judged):
    found = judged
    assert {each.claim for each in found} == {"Q2", "C7"}
    outcome = {each.asked: each.outcome for each in found}
    assert named(found, "one layer the law").outcome == "holds"
    assert named(found, "propagated finite-length noise").outcome == "holds"
    assert named(found, "independent").outcome == "fails"
    assert named(found, "leave the covariance").outcome == "fails"
    assert sum(each.control for each in found) == 2
    assert len(outcome) == len(found)


def test_measured_errors_follow_the_band(data):
    ratio, error = depth_verdicts.band_ratio(data)
    assert ratio.sizes["case"] >= 2
    assert np.all(abs(ratio - 1) < 0.1 + 7 * error)
    raw = (
        depth_verdicts.tame(data).raw.sel(quantity="token", length=256) * 256 / depth_verdicts.tame(data).band.sel(quantity="token")
    )
    assert 0.4 < float(raw.median()) < 2  # without control variates


def test_control_variates_have_mean_zero():
    """And are what they say: the squared norm of the first-order displacement, averaged over queries that are no tokens."""
    case = depth_cases.Case("spiked", "random", "1", 0.2)
    mu = depth_cases.entry_law("spiked", 2, 0.25)
    stack = depth_cases.make_stack(case, mu, 2, 0)
    noise = depth.deep_noise(depth.deep_limit(stack, mu), 3)
    tokens = mu.sample(20_000 * 20, torch.Generator().manual_seed(0)).reshape(20_000, 20, 2)
    values = depth_prompts._control_variates(noise, noise.moments(tokens), 20)
    spread = values.std(-1) / math.sqrt(values.shape[-1])
    known = np.isfinite(spread) & (spread > 0)
    assert np.all(np.abs(values.mean(-1))[known] < 6 * spread[known])
    assert np.isnan(values[1, 0]).all()


def test_stack_has_the_score_variance_it_names():
    mu = depth_cases.entry_law("power law", 5, 0.3)
    stack = depth_cases.make_stack(depth_cases.Case("power law", "random", "1/N", 0.7), mu, 6, 1)
    for k in range(6):
        alone = depth.deep_limit(depth_cases.ResidualStack(stack.U[k : k + 1], stack.V[k : k + 1]), mu)
        assert float(alone.score_variance[0]) == pytest.approx(0.7)
    shared = depth_cases.make_stack(depth_cases.Case("power law", "shared", "1", 0.7), mu, 6, 1)
    torch.testing.assert_close(shared.V, shared.V[:1].expand(6, 5, 5))
    torch.testing.assert_close(shared.V[0], 6 * stack.V[0])
    for kind in ("isotropic", "power law", "spiked"):
        assert float(depth_cases.spectrum(kind, 5).trace()) == pytest.approx(5)
    with pytest.raises(InvalidArgumentError, match="'isotropic', 'power law' or 'spiked'"):
        depth_cases.spectrum("flat", 3)
    with pytest.raises(InvalidArgumentError, match="scales"):
        depth_cases.make_stack(depth_cases.Case("isotropic", "random", "2", 0.7), mu, 6, 1)


def test_kurtosis_is_zero_for_gaussian_tokens_and_known_on_the_sphere():
    z = torch.randn(400, 100, 3, generator=torch.Generator().manual_seed(0), dtype=F)
    found = depth_prompts.excess_kurtosis(z)
    assert abs(float(found.mean())) < 6 * float(found.std()) / 20
    sphere = z / z.norm(dim=-1, keepdim=True)
    assert float(depth_prompts.excess_kurtosis(sphere.reshape(1, -1, 3)).mean()) == pytest.approx(-2 / 5, abs=5e-3)


def test_slopes_of_a_power_law():
    lengths = np.array([10.0, 100.0, 1000.0])
    values = 3 * lengths**-0.7
    middle, low, high = depth.slopes(lengths, values, 0.01 * values)
    assert middle == pytest.approx(-0.7)
    assert high - middle == pytest.approx(middle - low)
    assert high - middle == pytest.approx(1.96 * 0.01 * math.sqrt(2) / math.log(100), rel=1e-9)


DOCTORED = [
    ("one layer the law", {"one_layer": 1.5}, "fails"),
    ("propagated finite-length noise", {"band": 2.0}, "fails"),
    ("like 1/L?", {"slope": 0.5}, "fails"),
    ("Hermite moments", {"residual": 1e3}, "fails"),
    ("keep the closure from breaking", {"normalised_error": 1e4}, "fails"),
    ("keep the closure from breaking", {"normalised_error": 1e-4}, "holds"),
    ("predicted level", {"level": 1e3}, "fails"),
    ("linear-attention", {"raw": 1e4}, "fails"),
    ("leave the covariance", {"frozen": 1e-6}, "holds"),
]


@pytest.mark.parametrize(("words", "changes", "outcome"), DOCTORED)
def test_rules_go_either_way(data, judged, words, changes, outcome):
    doctored = data.copy(deep=True)
    for name, factor in changes.items():
        doctored[name] = doctored[name] * factor
    assert verdict(doctored, words).outcome == outcome
    assert named(judged, words).outcome != outcome or words == "keep the closure from breaking"


def test_more_rules(data):
    doctored = data.copy(deep=True)
    doctored["identity_error"] = 1e-3
    assert verdict(doctored, "one layer the law").outcome == "fails"
    doctored["independent"] = doctored.band.sel(quantity="token", drop=True)
    assert verdict(doctored, "independent").outcome == "holds"
    early, late = depth_verdicts.breaking_window(data)
    doctored["measured_breaking"] = late.where(np.isfinite(data.measured_breaking))
    assert verdict(doctored, "which layer the closure breaks").outcome == "holds"
    none = float(data.layer.max()) + 1
    doctored["measured_breaking"] = (early * 0 + 1).where(early >= 3, none).where(np.isfinite(data.measured_breaking))
    assert verdict(doctored, "which layer the closure breaks").outcome == "fails"
    doctored["measured_breaking"] = xr_full(data.measured_breaking, none)
    assert verdict(doctored, "linear-attention").outcome == "holds"
    for slope, outcome in ((-1.0, "fails"), (-0.5, "holds")):
        doctored["slope"] = xr_full(data.slope, slope)
        assert verdict(doctored, "Is 1/L lost").outcome == outcome
    assert bool(((early <= late) | np.isnan(early)).all())


def xr_full(array, value):
    return array.where(np.isnan(array), value)


def test_figures_draw_the_data(data):
    drawn = {entry.draw: entry.draw(data) for entry in figures("depth")}
    for figure in drawn.values():
        with house_style():
            figure.draw_without_rendering()  # warnings are errors: empty legends, layout
    assert all(entry.caption.endswith(".") for entry in figures("depth"))
    case = shown_cases(data)[0]
    panel = drawn[band_figure].axes[0]
    expected = np.sqrt(data.band.sel(case=case, quantity="token") / 256).where(data.layer > 0)
    assert any(
        np.allclose(np.asarray(line.get_ydata(), dtype=float), expected, equal_nan=True)
        for line in panel.lines
        if len(line.get_ydata()) == 5
    )
    left, right = drawn[breaking_figure].axes
    assert any(np.allclose(line.get_ydata(), math.log(16) / 2) for line in left.lines)
    points = sum(len(line.get_xdata()) for line in right.lines if line.get_marker() != "None")
    assert points == int(np.isfinite(data.measured_breaking).sum())
    axes = drawn[normalised_figure].axes
    part = data.isel(normalised=0, layer=slice(1, None))
    level, error = float(part.level.mean()), float(part.level_error.mean())
    drawn_level = any(np.allclose(line.get_ydata(), math.sqrt(max(level, 0.0))) for line in axes[0].lines)
    assert drawn_level == (level > 3 * error)  # a level that is not told from 0 is not drawn
