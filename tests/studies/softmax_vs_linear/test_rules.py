"""Softmax against linear attention: settings, rules that go either way, and figures of the data."""

import pytest
from study_checks import RuleChecks, SettingChecks, drawn, figures_are_complete

from largeprompt.studies.softmax_vs_linear.figures import heads, regression, selection
from largeprompt.studies.softmax_vs_linear.study import STUDY


class TestSettings(SettingChecks):
    study = STUDY
    refused = (
        *("dims=0", "dims=21", "spectra=flat", "largest_scale=13", "pair_lengths=1"),
        *("outlier_shares=1", "outlier_lengths=5", "lengths=10,5"),
    )


class TestRules(RuleChecks):
    study = STUDY
    reactions = (
        ("predicted multiple", "holds", "limit_ratio", {"dim": 0}, lambda x: 1.01 * x, "fails"),
        ("predicted multiple", "holds", "spectrum_limit", {}, lambda x: 1.01 * x, "fails"),
        ("at least as good", "holds", "softmax_best", {"length": 1}, lambda x: 0.1 * x, "fails"),
        ("opposite tilts", "holds", "pair_best", {}, lambda x: 1.01 * x, "fails"),
        ("informative", "holds", "location_half", {}, lambda x: 1.2 * x, "holds in part"),
        ("informative", "holds", "location_softmax", {}, lambda x: 0.1 * x, "fails"),
        ("marked outliers", "holds", "outlier_crossing", {}, lambda x: 1.5 * x, "fails"),
        ("own: does", "holds", "shift_pair", {}, lambda x: 10 * x, "fails"),
        ("no mark", "fails", "outlier_unmarked", {}, lambda x: 0 * x + 0.9, "holds"),
    )


def test_figures_draw_what_was_found(data):
    location, outliers, shifts = selection.draw(data).axes
    assert drawn(location, data.location_annealed.isel(location_length=0, spike=slice(1, None)))
    assert drawn(outliers, data.outlier_predicted)
    assert drawn(shifts, data.shift_linear.isel(shift_dim=0, shift_variance=1))
    left, right = regression.draw(data).axes
    ratio = data.softmax_best / data.linear_best
    assert drawn(left, ratio.sel(dim=5).isel(noise=0))
    assert drawn(right, data.limit_ratio.sel(noise=1.0))
    two = (data.pair_best / data.pair_linear).isel(pair_noise=0).sel(pair_dim=2)
    assert drawn(heads.draw(data).axes[1], two)
    figures_are_complete(STUDY, data)


@pytest.mark.parametrize("name", ["limit_ratio", "shift_crossing"])
def test_predictions_do_not_depend_on_the_length(data, name):
    assert not {"length", "shift_length"} & set(data[name].dims)
