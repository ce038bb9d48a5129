"""N2: rules change their mind when the data does, and their controls fail."""

import numpy as np
import pytest
import xarray as xr
from study_checks import RuleChecks, SettingChecks, outcome

from largeprompt.studies.discrete.rules import at_zero, intercept, usual
from largeprompt.studies.discrete.study import STUDY


class TestRules(RuleChecks):
    study = STUDY
    reactions = (
        ("authors' settings", "holds", "paper_spread", {}, lambda x: 100 * x, "fails"),
        ("authors' settings", "holds", "paper_spread_error", {}, lambda x: 9 * x, "undecided"),
        ("its own flow", "holds", "memory_gap", {}, lambda x: 1e4 * x, "fails"),
        ("predicted multiple", "holds", "gap", {"length": 1}, lambda x: 1.1 * x, "fails"),
        ("largest stable step", "holds", "measured_stable_step", {}, lambda x: 1.01 * x, "fails"),
        ("largest stable step", "holds", "growth_beyond", {"length": 0}, lambda x: 0 * x, "fails"),
        ("SGD spread around", "holds", "sgd_spread", {}, lambda x: 2 * x, "fails"),
        ("SGD spread around", "holds", "sgd_spread_error", {}, lambda x: 60 * x, "undecided"),
        ("half the batch", "fails", "sgd_spread", {}, lambda x: 2 * x, "holds"),
        ("Does Adam end", "fails", "adam_gauge", {}, lambda x: 0 * x, "holds"),
    )


class TestSettings(SettingChecks):
    study = STUDY
    refused = (
        "dim=0",
        "covariance=toeplit",
        "noise_variance=-1",
        "lengths=1000,30",
        "step_sizes=0.1,0.1",
        "batches=[[0.05, 8]]",
        "batches=[[0.05, 8, 1]]",
        "paper_steps=1000000",
        "times=1",
    )


def test_a_line_is_extrapolated_from_its_two_smallest_steps_whatever_their_order():
    values = [0.1, 0.4, 0.2]
    steps = xr.DataArray(values, dims="step", coords={"step": values}, name="step")
    ratio = xr.DataArray(
        [[1.3, 99.0, 1.6], [2.0, 99.0, 2.0]], dims=("length", "step"), coords={"step": steps}
    )
    np.testing.assert_allclose(at_zero(steps, ratio), [1.0, 2.0])


def test_fits_find_what_they_should(data):
    a, error = intercept(data)
    assert a == pytest.approx(1)
    assert 0 < error < 0.1
    assert usual(data) == 1e-3
    assert outcome(STUDY, data.isel(batch=[0]), "SGD spread around") == "undecided"
