"""Rules of the depth study (Q2, C7): each goes either way."""

import numpy as np
import pytest
from study_checks import answers_to_few_settings, verdicts

from largeprompt.studies.depth.rules import breaking_window
from largeprompt.studies.depth.study import STUDY


def named(verdicts, words):
    (found,) = [each for each in verdicts if words in each.asked]
    return found


def verdict(data, words):
    return named(verdicts(STUDY, data, words), words)


def test_verdicts_of_the_small_setting(judged):
    """Q2 and C7."""
    found = judged
    assert {each.claim for each in found} == {"Q2", "C7"}
    outcome = {each.asked: each.outcome for each in found}
    assert named(found, "one layer the law").outcome == "holds"
    assert named(found, "propagated finite-length noise").outcome == "holds"
    assert named(found, "independent").outcome == "fails"
    assert named(found, "leave the covariance").outcome == "fails"
    assert sum(each.control for each in found) == 2
    assert len(outcome) == len(found)


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


def xr_full(array, value):
    return array.where(np.isnan(array), value)


def test_more_rules(data):
    doctored = data.copy(deep=True)
    doctored["identity_error"] = 1e-3
    assert verdict(doctored, "one layer the law").outcome == "fails"
    doctored["independent"] = doctored.band.sel(quantity="token", drop=True)
    assert verdict(doctored, "independent").outcome == "holds"
    early, late = breaking_window(data)
    doctored["measured_breaking"] = late.where(np.isfinite(data.measured_breaking))
    assert verdict(doctored, "which layer the closure breaks").outcome == "holds"
    none = float(data.layer.max()) + 1
    doctored["measured_breaking"] = (
        (early * 0 + 1).where(early >= 3, none).where(np.isfinite(data.measured_breaking))
    )
    assert verdict(doctored, "which layer the closure breaks").outcome == "fails"
    doctored["measured_breaking"] = xr_full(data.measured_breaking, none)
    assert verdict(doctored, "linear-attention").outcome == "holds"
    for slope, outcome in ((-1.0, "fails"), (-0.5, "holds")):
        doctored["slope"] = xr_full(data.slope, slope)
        assert verdict(doctored, "Is 1/L lost").outcome == outcome
    assert bool(((early <= late) | np.isnan(early)).all())


NANS = [
    ("one layer the law", "one_layer"),
    ("like 1/L?", "slope"),
    ("propagated finite-length noise", "error"),
    ("independent", "independent"),
    ("Hermite moments", "residual"),
    ("predicted level", "measured_level"),
    ("keep the closure from breaking", "normalised_error"),
    ("leave the covariance", "frozen"),
    ("linear-attention", "raw"),
]


@pytest.mark.parametrize(("words", "name"), NANS)
def test_rules_are_undecided_where_their_numbers_are_nan(data, words, name):
    assert verdict(data.assign({name: data[name] * np.nan}), words).outcome == "undecided"


def test_every_rule_has_an_answer_to_few_settings(data):
    answers_to_few_settings(STUDY, data)
