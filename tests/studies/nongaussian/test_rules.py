"""Rules of the study of tokens that are not Gaussian (N1, C5): each goes either way."""

import json

import numpy as np
import pytest
from study_checks import answers_to_few_settings, outcome

from largeprompt.studies.nongaussian.study import STUDY


def find(verdicts, asked):
    return next(verdict for verdict in verdicts if asked in verdict.asked)


def test_controls_fail_and_the_rest_holds(data, judged):
    """N1 and C5, all rules."""
    found = judged
    assert [verdict.outcome for verdict in found if verdict.control] == ["fails"] * 3
    assert {verdict.claim for verdict in found} == {"N1", "C5"}
    assert not any("nan" in verdict.measured for verdict in found)
    # a handful of sets of prompts says too little
    few = ("flows on drawn prompts agree", "training on Gaussian inputs give back")
    assert [find(judged, words).outcome for words in few] == ["undecided"] * 2
    many = data.assign_attrs(config=json.dumps(json.loads(data.attrs["config"]) | {"sets": 1000}))
    exact = data.flow_theta.sel(flow_length=data.drawn_length.values).rename(
        flow_length="drawn_length"
    )
    exact = exact.assign_coords(drawn_length=data.drawn_length)
    near = many.assign(
        trained_theta=exact + (data.trained_theta - exact) / 4, trained_error=data.trained_error / 4
    )
    assert [outcome(STUDY, near, words) for words in few] == ["holds"] * 2
    rest = {
        verdict.outcome
        for verdict in found
        if not verdict.control and not any(words in verdict.asked for words in few)
    }
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
    ("stay in a tube", "flow_distance", {"flow_length": 2}, lambda x: x + 1, "fails"),
    ("agree with the flows", "trained_theta", {}, lambda x: x + 5, "fails"),
    ("level off where the two", "trained_gauss", {}, lambda x: x + 5, "fails"),
    ("Gaussian inputs give back", "level", {"inputs": 1}, lambda x: x + 1, "fails"),
    (
        "follow the Gaussian theory's",
        "flow_gauss_distance",
        {"flow_length": 2},
        lambda x: 0 * x,
        "holds",
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
    ("stay in a tube", "flow_distance"),
    ("level off where the two", "trained_gauss"),
    ("Gaussian inputs give back", "level"),
    ("follow the Gaussian theory's", "flow_gauss_distance"),
]


@pytest.mark.parametrize(("asked", "name"), NANS)
def test_rules_are_undecided_where_their_numbers_are_nan(data, asked, name):
    assert outcome(STUDY, data.assign({name: data[name] * np.nan}), asked) == "undecided"


def test_rules_without_their_control_give_no_verdict(data):
    """N1, C5: settings may leave out uncorrelated tokens and Gaussian inputs."""
    asked = [
        each.asked for each in STUDY.judge(data.drop_sel(dependence="AR(1) 0", inputs="Gaussian"))
    ]
    assert len(asked) == len(STUDY.rules) - 2


def test_every_rule_has_an_answer_to_few_settings(data):
    answers_to_few_settings(STUDY, data)
