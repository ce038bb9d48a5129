"""Rules of the study of trained transformers (C2, C5, C6, C7, Q1, Q2): each goes either way."""

import numpy as np
import pytest
import xarray as xr
from study_checks import answers_to_few_settings, verdicts

from largeprompt.studies.trained.study import STUDY


def test_verdicts_name_what_they_ask_and_mark_their_controls(data):
    found = STUDY.judge(data)
    assert [each.control for each in found[-2:]] == [True, True]
    assert all(each.asked.endswith("?") and each.measured.endswith(".") for each in found)
    assert len({each.asked for each in found}) == len(found) == 16


def changed(data, **values):
    data = data.copy(deep=True)
    for name, value in values.items():
        data[name] = value(data).broadcast_like(data[name]).transpose(*data[name].dims)
    return data


@pytest.mark.parametrize(
    ("question", "changes", "outcome"),
    [
        ("Does a trained bare head have", {"risk": lambda d: d.risk}, "holds"),
        (
            "Does a trained bare head have",
            {"risk": lambda d: 1.5 * d.exact_risk.fillna(1.0)},
            "fails",
        ),
        (
            "Does training one bare head end",
            {"exact_objective": lambda d: 1.01 * d.objective_optimum},
            "holds",
        ),
        (
            "Does training one bare head end",
            {"exact_objective": lambda d: 1.03 * d.objective_optimum},
            "fails",
        ),
        ("Is the trained head at no length better", {"risk": lambda d: d.softmax_optimum}, "holds"),
        (
            "Is the trained head at no length better",
            {"risk": lambda d: 0.5 * d.softmax_optimum, "risk_error": lambda d: 0.01 * d.bayes},
            "fails",
        ),
        ("At which lengths does the risk", {"exact_risk": lambda d: d.carried}, "holds"),
        (
            "At which lengths does the risk",
            {"exact_risk": lambda d: d.carried + 0.3 * (d.length > 16)},
            "holds in part",
        ),
        ("At which lengths does the risk", {"exact_risk": lambda d: 2 * d.carried}, "fails"),
        ("Do 2 softmax heads", {"risk": lambda d: d.linear_optimum}, "holds"),
        ("Do 2 softmax heads", {"risk": lambda d: d.softmax_optimum}, "fails"),
        (
            "Do deeper models",
            {"risk": lambda d: d.bayes, "risk_error": lambda d: 0.01 * d.bayes},
            "holds",
        ),
        ("Do deeper models", {"risk": lambda d: d.softmax_optimum}, "fails"),
        ("Does the risk of deeper models", {"risk": lambda d: d.linear_optimum}, "holds in part"),
        (
            "Does the risk of deeper models",
            {"risk": lambda d: d.floor + 2 * (d.softmax_optimum - d.floor)},
            "fails",
        ),
        (
            "Does the affine read-out of",
            {"exact_replaced": lambda d: d.exact_replaced + 1.0},
            "fails",
        ),
        (
            "Is the affine error of trained heads",
            {"law_share": lambda d: d.law_share / d.law_share},
            "holds",
        ),
        (
            "Is the affine error of trained heads",
            {"law_share": lambda d: 0.3 * d.law_share / d.law_share},
            "fails",
        ),
        (
            "May every head",
            {"replaced_risk": lambda d: 1 + 0.05 * (d.replaced == "affine")},
            "holds",
        ),
        (
            "May every head",
            {"replaced_risk": lambda d: 1 + 0.2 * (d.replaced == "affine") * (d.layers > 1)},
            "holds in part",
        ),
        (
            "May every head",
            {"replaced_risk": lambda d: 1 + 0.2 * (d.replaced == "affine")},
            "fails",
        ),
        ("Is no model better than Bayes", {"risk": lambda d: d.bayes}, "holds"),
        (
            "Is no model better than Bayes",
            {"risk": lambda d: 0.3 * d.bayes, "risk_error": lambda d: 0.01 * d.bayes},
            "fails",
        ),
        ("Do untrained models", {"checkpoint_risk": lambda d: d.zero_risk}, "fails"),
        ("Do untrained models", {"checkpoint_risk": lambda d: 0.5 * d.zero_risk}, "holds"),
        ("Does a model trained on prompts without", {"risk": lambda d: d.zero_risk}, "fails"),
        ("Does a model trained on prompts without", {"risk": lambda d: 0.5 * d.zero_risk}, "holds"),
        (
            "Do trained heads of bare attention",
            {"alpha": lambda d: 0.2 * d.alpha / d.alpha},
            "undecided",
        ),
    ],
)
def test_rules_go_either_way(data, question, changes, outcome):
    found = [
        each
        for each in verdicts(STUDY, changed(data, **changes), question)
        if each.asked.startswith(question)
    ]
    assert [each.outcome for each in found] == [outcome]


@pytest.mark.parametrize(("alpha", "outcome"), [(0.2, "holds"), (0.7, "fails")])
def test_regime_is_decided_by_enough_trainings(data, alpha, outcome):
    data = changed(data, alpha=lambda d: alpha * d.alpha / d.alpha)
    many = data.isel(run=np.tile([0, 1], 4))
    found = verdicts(STUDY, many, "Do trained heads")
    assert [each.outcome for each in found] == [outcome, outcome]


def test_audit_rule_compares_heads_one_by_one(data):
    for kept, lost, outcome in ((1.01, 2.0, "holds"), (2.0, 1.01, "fails")):
        doctored = changed(
            data,
            finding=lambda d: (d.finding * 0).where(d["head"] == 1, d.finding * 0 + 3),
            replaced_risk=lambda d, kept=kept, lost=lost: xr.where(
                d.replaced == "moments heads",
                kept,
                xr.where(d.replaced == "other heads", lost, 1.0),
            ),
        )
        assert verdicts(STUDY, doctored, "only moments")[0].outcome == outcome
    alike = changed(data, finding=lambda d: d.finding * 0)
    assert verdicts(STUDY, alike, "only moments")[0].outcome == "undecided"


def test_rules_without_their_models_give_no_verdict(data):
    """C5, C6, C7, Q1, Q2: what settings leave out is not judged, and nothing breaks."""
    asked = [each.asked for each in STUDY.judge(data.sel(model=["blocks 2x1"]))]
    assert len(asked) == 8
    assert not any("bare" in each or "without information" in each for each in asked)


NANS = [
    ("Does a trained bare head have", "risk"),
    ("Does training one bare head end", "exact_objective"),
    ("At which lengths does the risk", "exact_risk"),
    ("Do 2 softmax heads", "risk"),
    ("Do deeper models", "risk"),
    ("Does the affine read-out of", "exact_replaced"),
    ("Is the affine error of trained heads", "law_share"),
    ("May every head", "replaced_risk"),
    ("Is no model better than Bayes", "bayes"),
    ("Do untrained models", "checkpoint_risk"),
    ("Does a model trained on prompts without", "risk"),
]


@pytest.mark.parametrize(("question", "name"), NANS)
def test_rules_are_undecided_where_their_numbers_are_nan(data, question, name):
    found = verdicts(STUDY, data.assign({name: data[name] * np.nan}), question)
    assert next(each for each in found if each.asked.startswith(question)).outcome == "undecided"


def test_every_rule_has_an_answer_to_few_settings(data):
    answers_to_few_settings(STUDY, data)
