"""The study of discrete training in a small setting: it stores, its rules react, its figures draw the data."""

import dataclasses
import math

import numpy as np
import pytest
import xarray as xr

from largeprompt.report.catalogue import figures
from largeprompt.runs.style import house_style
from largeprompt.studies.discrete import study as discrete
from largeprompt.studies.discrete.figures import adam_figure, descent_figure, sgd_figure
from largeprompt.studies.discrete.rules import exponents, intercept, usual, verdicts
from largeprompt.studies.registry import study

SMALL = dataclasses.replace(
    discrete.STUDY.quick,
    step_sizes=(0.1, 0.05),
    modified_step_sizes=(0.1, 0.05),
    large_steps=5,
    large_until=20.0,
    batches=((0.05, 64, 24), (0.05, 256, 16), (0.025, 64, 24)),
    paper_steps=20,
)


@pytest.fixture(scope="module")
def data():
    return discrete.STUDY.run(SMALL)


def outcome(data, words):
    return next(verdict.outcome for verdict in verdicts(data) if words in verdict.asked)


def test_study_is_registered_and_stores(data, tmp_path):
    assert study("discrete") is discrete.STUDY
    data.to_netcdf(tmp_path / "data.nc", engine="h5netcdf")
    again = xr.load_dataset(tmp_path / "data.nc", engine="h5netcdf")
    assert discrete.STUDY.judge(again) == discrete.STUDY.judge(data)


def test_verdicts_have_numbers_and_controls_fail(data):
    found = verdicts(data)
    assert len(found) == 18
    assert all(any(letter.isdigit() for letter in verdict.measured) for verdict in found)
    controls = {verdict.asked: verdict.outcome for verdict in found if verdict.control}
    assert len(controls) == 3
    assert outcome(data, "one per cent above") == "fails"


@pytest.mark.parametrize(
    ("words", "before", "name", "factor", "after"),
    [
        ("predicted coefficient times", "holds", "gap", 1.1, "fails"),
        ("to second order", "holds", "modified_gap", "step", "fails"),
        ("is a bowl", "holds", "bowl_gap_error", 1e8, "fails"),
        ("descend alike", "holds", "gap", "softmax", "fails"),
        ("largest step at which", "holds", "measured_stable_step", 1.01, "fails"),
        ("one per cent above", "fails", "growth_beyond", 0.0, "holds"),
        ("wander along the slow", "undecided", "predicted_wander", 1e4, "fails"),
        ("wander along the slow", "undecided", "free_wander", 1e4, "holds"),
        ("flow with memory", "holds", "memory_gap", 1e4, "fails"),
        ("steps has Adam crossed", "holds", "predicted_arrival", 1.1, "fails"),
        ("authors' settings", "holds", "paper_spread", 100.0, "fails"),
    ],
)
def test_rules_react(data, words, before, name, factor, after):
    assert outcome(data, words) == before
    scale = factor
    if factor == "step":
        scale = 1 / data.modified_step_size
    elif factor == "softmax":
        scale = xr.where(data.attention == "softmax", 1.001, 1.0)
    assert outcome(data.assign({name: data[name] * scale}), words) == after


def test_sign_flow_and_end_of_adam_are_judged(data):
    assert outcome(data, "tends to 0") == "undecided"  # the steps are too large to extrapolate
    finer = data.assign_coords(sign_step_size=data.sign_step_size / 10)
    finer = finer.assign(early_sign_gap=finer.predicted_sign_gap)
    assert outcome(finer, "tends to 0") == "holds"
    assert outcome(finer.assign(early_sign_gap=2 * finer.predicted_sign_gap), "tends to 0") == "fails"
    same = data.assign(adam_gauge=data.adam_gauge * 0 + data.flow_gauge)
    assert outcome(same, "line of solutions") == "holds"
    assert outcome(data.assign(adam_gauge=data.adam_gauge * 0 + 1.0), "line of solutions") == "fails"


def test_spread_is_judged_only_where_a_wrong_law_would_show(data):
    exact = data.assign(
        sgd_spread=data.predicted_spread,
        sgd_spread_error=0.03 * data.predicted_spread,
        predicted_spread_error=0 * data.predicted_spread,
    )
    asked, control = "runs of SGD spread", "half the batch size"
    assert (outcome(exact, asked), outcome(exact, control)) == ("holds", "fails")
    vague = exact.assign(sgd_spread_error=data.predicted_spread)
    assert (outcome(vague, asked), outcome(vague, control)) == ("undecided", "holds")
    assert outcome(exact.assign(sgd_spread=2 * exact.sgd_spread), asked) == "fails"


def test_edge_of_stability_is_judged_by_length(data):
    asked, even = "stop where the sharpness", data.assign(large_sharpness=np.minimum(2 / data.stable_step, 2 / data.large_step))
    assert outcome(even, asked) == "holds"
    assert (
        outcome(even.assign(large_sharpness=xr.where(np.isinf(data.length), 1.2, 1.0) * even.large_sharpness), asked)
        == "holds in part"
    )
    assert outcome(even.assign(large_sharpness=1.2 * even.large_sharpness), asked) == "fails"


def test_fits_find_what_they_should(data):
    """Made spreads: a law that is right but for 40 η/B; gaps exactly like √(η/B)."""
    noise = data.batch_step_size / data.batch_size
    made = data.assign(
        sgd_spread=data.predicted_spread * (1 + 40 * noise),
        sgd_spread_error=0.01 * data.predicted_spread,
        sgd_gap=np.sqrt(noise),
        sgd_gap_error=0.01 * np.sqrt(noise),
    )
    a, _, c, _ = intercept(made)
    assert (a, c) == (pytest.approx(1), pytest.approx(40))
    found = exponents(made)
    assert found["batch_size"][0] == pytest.approx(-0.5)
    assert found["batch_step_size"][0] == pytest.approx(0.5)
    assert outcome(made, "proportional") == "holds"
    assert outcome(made.assign(sgd_gap=noise, sgd_gap_error=0.01 * noise), "proportional") == "fails"
    assert usual(data) == 5e-3


def test_predictions_do_not_depend_on_what_is_measured():
    """The same law whatever is drawn after it."""
    fewer = dataclasses.replace(SMALL, batches=((0.05, 32, 8), (0.05, 64, 8)))
    more = dataclasses.replace(SMALL, batches=((0.05, 32, 12), (0.05, 64, 8)))
    first, second = (discrete.compute(config, "sgd", lambda _: None) for config in (fewer, more))
    assert bool((first.predicted_spread == second.predicted_spread).all())
    assert float(first.sgd_spread[0]) != float(second.sgd_spread[0])


def test_figures_draw_the_data(data):
    first, second, third = descent_figure(data).axes
    softmax = data.sel(attention="softmax")
    steps = np.sort(data.step_size.values)
    assert any(np.allclose(line.get_ydata(), float(softmax.predicted_gap[0]) * steps) for line in first.lines)
    assert any(np.array_equal(line.get_ydata(), softmax.gap[0]) for line in first.lines)
    np.testing.assert_allclose(second.lines[0].get_ydata(), data.sharpness[0, 1:])
    np.testing.assert_allclose(third.lines[0].get_ydata(), data.large_sharpness[0] * data.stable_step[0] / 2)
    batches, wander, authors = sgd_figure(data).axes
    np.testing.assert_allclose(np.sort(batches.lines[0].get_ydata()), np.sort(data.predicted_sgd_gap))
    np.testing.assert_allclose(wander.lines[0].get_ydata(), data.predicted_wander[0])
    np.testing.assert_allclose(authors.lines[0].get_ydata(), data.paper_law[1:])
    left, right = adam_figure(data).axes
    np.testing.assert_allclose(left.lines[1].get_ydata(), data.memory_gap[0])
    np.testing.assert_allclose(right.lines[0].get_ydata(), data.memory_b.isel(adam_length=-1).sel(adam_step_size=5e-3))
    assert math.isclose(float(data.flow_b[-1]), right.lines[-1].get_ydata()[0])
    for entry in figures("discrete"):
        with house_style():
            entry.draw(data).draw_without_rendering()
        assert entry.caption.endswith(".")
