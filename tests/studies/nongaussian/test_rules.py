"""Rules of the study of tokens that are not Gaussian (N1): each goes either way."""

import numpy as np
import pytest
from study_checks import answers_to_few_settings, outcome

from largeprompt.studies.nongaussian.study import STUDY


def find(verdicts, asked):
    return next(verdict for verdict in verdicts if asked in verdict.asked)


def test_controls_fail_and_the_rest_holds(data, judged):
    """N1, all rules."""
    found = judged
    assert [verdict.outcome for verdict in found if verdict.control] == ["fails"] * 2
    assert {verdict.claim for verdict in found} == {"N1"}
    assert not any("nan" in verdict.measured for verdict in found)
    rest = {verdict.outcome for verdict in found if not verdict.control}
    assert rest <= {"holds", "holds in part"}
    # one pair needs longer prompts
    assert find(judged, "tilt limit of their law").outcome == "holds in part"
    assert outcome(STUDY, data.drop_sel(family="skew"), "tilt limit of their law") == "holds"


DOCTORED = [
    (
        "independent Gaussian tokens",
        "drawn_mse",
        {"family": 4, "length": 1},
        lambda x: 3 * x,
        "fails",
    ),
    ("tilt limit of their law", "drawn_mse", {"family": 1, "length": 2}, lambda x: 3 * x, "fails"),
    ("tilt limit of their law", "route_difference", {"family": 1}, lambda x: x + 1e-6, "fails"),
    (
        "level off at the predicted gap, in",
        "drawn_affine_mse",
        {"family": 0, "length": 2},
        lambda x: 2 * x,
        "fails",
    ),
    ("third and fourth", "fourth", {}, lambda x: 0 * x, "fails"),
    ("distance of the law from", "scaling_gap", {}, lambda x: x**2, "fails"),
    ("From which length", "drawn_mse", {}, lambda x: 30 * x, "fails"),
    ("repeated r times", "dependent_drawn", {"dependence": 2}, lambda x: 3 * x, "fails"),
    (
        "autocorrelated tokens as good",
        "dependent_drawn",
        {"dependence": 1},
        lambda x: 3 * x,
        "fails",
    ),
]


@pytest.mark.parametrize(("asked", "name", "index", "change", "after"), DOCTORED)
def test_rules_change_their_mind(data, judged, asked, name, index, change, after):
    before = find(judged, asked).outcome
    wrong = data.copy(deep=True)
    wrong[name][index] = change(wrong[name][index])
    assert outcome(STUDY, wrong, asked) == after != before


def test_controls_hold_where_the_theory_would(data):
    """The negative controls turn round on data in which the Gaussian theory and independent tokens
    are right.
    """
    affine = data.assign(drawn_affine_mse=data.mse)
    assert outcome(STUDY, affine, "Is the affine read-out") == "holds"
    base = data.dependent_predicted.sel(dependence="AR(1) 0")
    independent = data.assign(dependent_drawn=base + 0 * data.dependent_drawn)
    assert outcome(STUDY, independent, "same number of independent") == "holds"


NANS = [
    ("independent Gaussian tokens", "gap"),
    ("third and fourth", "fourth"),
    ("distance of the law from", "scaling_gap"),
    ("repeated r times", "dependent_drawn"),
    ("autocorrelated tokens as good", "dependent_predicted"),
]


@pytest.mark.parametrize(("asked", "name"), NANS)
def test_rules_are_undecided_where_their_numbers_are_nan(data, asked, name):
    assert outcome(STUDY, data.assign({name: data[name] * np.nan}), asked) == "undecided"


def test_rules_without_their_control_give_no_verdict(data):
    """N1: settings may leave out uncorrelated tokens."""
    asked = [each.asked for each in STUDY.judge(data.drop_sel(dependence="AR(1) 0"))]
    assert len(asked) == len(STUDY.rules) - 1


def test_every_rule_has_an_answer_to_few_settings(data):
    answers_to_few_settings(STUDY, data)
