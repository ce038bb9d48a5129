"""Rules of the study of in-context Markov chains (Q3, C5): each goes either way."""

import numpy as np
import pytest
from study_checks import answers_to_few_settings, verdicts

from largeprompt.studies.ngram.study import STUDY
from largeprompt.studies.registry import study


def outcome(data, asked):
    return verdicts(STUDY, data, asked)[0]


def test_registered_and_every_verdict_is_about_q3_or_c5(data):
    assert study("ngram").rules is STUDY.rules
    found = STUDY.judge(data)
    assert {verdict.claim for verdict in found} == {"Q3", "C5"}
    assert [verdict.asked for verdict in found if verdict.control] == [
        "Does the prediction fit the same symbols shuffled in time?"
    ]
    assert all(verdict.outcome == "fails" for verdict in found if verdict.control)


def put(name, where, value):
    def doctor(data):
        data[name][where] = value(data[name][where])

    return doctor


DOCTORED = [
    (
        "converge to the discrete tilt",
        "holds",
        put("constant", {"case": 1}, lambda x: 2 * x),
        "fails",
    ),
    ("exact law of a finite path", "holds", put("exact", {"case": 0}, lambda x: 2 * x), "fails"),
    ("mixing time as predicted", "holds", put("mixing_exact", {}, lambda x: 2 * x), "fails"),
    (
        "mixing time as predicted",
        "holds",
        put("mixing_constant", {"holding": -1}, lambda x: 0.01 * x),
        "fails",
    ),
    (
        "price of slow mixing vanish",
        "holds",
        put("mixing_ngram_ratio", {}, lambda x: x + 0.1),
        "fails",
    ),
    (
        "shuffled in time",
        "fails",
        lambda data: data.update(
            {"shuffled_mse": data.control_exact.sel(source="chain", drop=True)}
        ),
        "holds",
    ),
    ("base theory", "holds", put("control_exact", {"source": 3}, lambda x: 2 * x), "fails"),
    ("base theory", "holds", put("independent_symbols_gap", {}, lambda x: x + 1e-6), "fails"),
    (
        "grow without bound",
        "holds",
        put("beta_infinite", {"training_order": 0}, lambda x: 0.8 * x),
        "fails",
    ),
    (
        "stop at a finite",
        "holds",
        put("best_beta_exact", {"training_order": 0}, lambda x: x + 0.2),
        "fails",
    ),
    (
        "tube around",
        "holds",
        put("first_order_shift", {"training_order": 0}, lambda x: 2 * x),
        "fails",
    ),
    ("like e^-β", "holds", put("row_leading", {"case": 2}, lambda x: 1.1 * x), "fails"),
    ("like e^-β", "holds", put("tv_drawn", {"risk_length": -1}, lambda x: 1.5 * x), "fails"),
    ("beat the unsmoothed", "holds", put("saved", {}, lambda x: -x), "fails"),
    ("beat the unsmoothed", "holds", put("saved", {}, lambda x: 0 * x), "undecided"),
    (
        "beat the unsmoothed",
        "holds",
        put("saved", {"risk_length": -1}, lambda x: 0.2 * x),
        "holds in part",
    ),
    ("stay a linear operator", "fails", put("affine_gap", {}, lambda x: 1e-14 + 0 * x), "holds"),
    ("stay a linear operator", "fails", put("affine_exact", {}, lambda x: 3 * x), "undecided"),
    ("mixture", "holds", put("identity_error", {"case": 0}, lambda x: x + 1e-9), "fails"),
]


@pytest.mark.parametrize(("asked", "before", "doctor", "after"), DOCTORED)
def test_rule_reacts(data, asked, before, doctor, after):
    assert outcome(data, asked).outcome == before, outcome(data, asked).measured
    wrong = data.copy(deep=True)
    doctor(wrong)
    assert outcome(wrong, asked).outcome == after


NANS = [
    ("converge to the discrete tilt", "extrapolated"),
    ("exact law of a finite path", "mse"),
    ("mixing time as predicted", "mixing_constant"),
    ("price of slow mixing vanish", "mixing_ngram_ratio"),
    ("shuffled in time", "shuffled_mse"),
    ("base theory", "independent_symbols_gap"),
    ("grow without bound", "beta_infinite_predicted"),
    ("stop at a finite", "best_beta_standard_error"),
    ("tube around", "first_order_shift"),
    ("like e^-β", "row_leading"),
    ("beat the unsmoothed", "saved"),
    ("stay a linear operator", "affine_mse"),
    ("mixture", "identity_error"),
]


@pytest.mark.parametrize(("asked", "name"), NANS)
def test_rules_are_undecided_where_their_numbers_are_nan(data, asked, name):
    assert outcome(data.assign({name: data[name] * np.nan}), asked).outcome == "undecided"


def test_every_rule_has_an_answer_to_few_settings(data):
    answers_to_few_settings(STUDY, data)
