"""The depth study: settings, rules that go either way, and figures of the data."""

import dataclasses
import math

import numpy as np
import pydantic
import pytest
from study_checks import RuleChecks, SettingChecks, drawn, figures_are_complete

from largeprompt.studies.depth.figures import band, breaking
from largeprompt.studies.depth.study import STUDY


class TestSettings(SettingChecks):
    study = STUDY
    refused = ("spectra=flat", "weights=toeplitz", "scales=2", "dim=0", "lengths=512,32")


@pytest.mark.parametrize("bad", [{"judged_from": 4000}, {"normalized_lengths": (64,)}])
def test_bad_settings_are_refused(bad):
    with pytest.raises(pydantic.ValidationError, match=next(iter(bad))):
        dataclasses.replace(STUDY.quick, **bad)


class TestRules(RuleChecks):
    study = STUDY
    reactions = (
        ("propagated noise", "holds", "band", {}, lambda x: 2 * x, "fails"),
        ("independent?", "fails", "band", {"quantity": 0}, lambda x: 0 * x + 1, "fails"),
        ("keep the closure", "holds", "normalized_error", {}, lambda x: 100 * x, "fails"),
        ("predicted level", "undecided", "level", {}, lambda x: 100 * x, "fails"),
        ("linear attention does", "holds in part", "error", {}, lambda x: 1e4 * x, "fails"),
    )

    def test_predicted_layers_hold(self, data):
        made = data.assign(measured_breaking=data.predicted_last)
        rule = next(each for each in STUDY.rules if "which layer" in each.question)
        assert rule(made).outcome == "holds"
        early = made.assign(predicted_first=0 * made.predicted_first + 1)
        early["predicted_last"] = early.predicted_first
        early["measured_breaking"] = early.predicted_first + 3
        assert rule(early).outcome == "fails"

    def test_independent_noise_would_hold(self, data):
        made = data.assign(independent=data.band.sel(quantity="token", drop=True))
        rule = next(each for each in STUDY.rules if each.control)
        assert rule(made).outcome == "holds"


def test_figures_draw_what_was_found(data):
    above = band.draw(data).axes[0]
    one = data.isel(case=0).sel(quantity="token")
    assert drawn(above, np.sqrt(one.band.where(one.band > 0) / 64))
    left, right = breaking.draw(data).axes
    assert any(list(line.get_ydata()) == 2 * [math.log(16) / 2] for line in left.lines)
    points = sum(len(line.get_xdata()) for line in right.lines if line.get_marker() != "None")
    assert points == data.measured_breaking.size
    figures_are_complete(STUDY, data)
