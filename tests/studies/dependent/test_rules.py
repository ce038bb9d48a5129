"""Dependent tokens: settings, rules that go either way, and figures of the data."""

import dataclasses

import pydantic
import pytest
from study_checks import RuleChecks, SettingChecks, drawn, figures_are_complete

from largeprompt.studies.dependent.figures import paths, training
from largeprompt.studies.dependent.study import STUDY


class TestSettings(SettingChecks):
    study = STUDY
    refused = ("cases=[[1, 1]]", "cases=[[100, 3]]", "betas=-1", "holdings=1", "replicas=1")


@pytest.mark.parametrize("bad", [{"training_lengths": (128,)}, {"tube_until": 1e9}, {"seed": -1}])
def test_bad_settings_are_refused(bad):
    with pytest.raises(pydantic.ValidationError, match=next(iter(bad))):
        dataclasses.replace(STUDY.quick, **bad)


class TestRules(RuleChecks):
    study = STUDY
    reactions = (
        ("predicted rate", "holds", "constant", {"case": 1}, lambda x: 2 * x, "fails"),
        ("drawn paths", "holds", "exact_at_drawn", {"case": 0}, lambda x: 2 * x, "fails"),
        ("slow mixing", "holds", "mixing_exact", {}, lambda x: 2 * x, "fails"),
        ("slow mixing", "holds", "mixing_ngram_ratio", ..., lambda x: x + 0.1, "fails"),
        ("independent symbols", "fails", "memoryless", {}, lambda x: 0 * x, "holds"),
        ("½ ln t", "holds", "beta_infinite", {"time": -1}, lambda x: 0.8 * x, "fails"),
        ("½ ln t", "holds", "best_beta_exact", {}, lambda x: x + 0.2, "fails"),
        (
            "on bounded times",
            "holds",
            "beta_exact",
            {"training_length": 0},
            lambda x: 0 * x,
            "fails",
        ),
        ("beat the empirical", "holds", "saved_exact", {}, lambda x: -x, "fails"),
        ("stay affine", "fails", "affine_gap", {}, lambda x: 1e-14 + 0 * x, "holds"),
        (
            "the predicted number",
            "holds",
            "correlated_drawn",
            {},
            lambda x: 1.4 * x,
            "holds in part",
        ),
        ("the predicted number", "holds", "correlated_drawn", {}, lambda x: 3 * x, "fails"),
    )


def test_figures_draw_what_was_found(data):
    left, middle, right = paths.draw(data).axes
    rarest = data.sel(query="rarest").isel(beta=1, case=0)
    assert drawn(left, rarest.exact)
    assert drawn(middle, (data.mixing_constant / data.mixing_independent).isel(mixing_beta=0))
    assert drawn(right, data.effective.isel(correlation=0) / data.correlated_length)
    flows, optima, limit = training.draw(data).axes
    late = data.sel(time=slice(1e-2, None))
    assert drawn(flows, late.beta_infinite)
    assert drawn(optima, data.best_beta_exact)
    assert drawn(limit, data.affine_gap.isel(case=1))
    figures_are_complete(STUDY, data)
