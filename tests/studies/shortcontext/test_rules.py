"""F1: rules about short prompts change their mind when the data does."""

import pytest
from study_checks import answers_to_few_settings, reacts, speaks_in_numbers, undecided_without_numbers

from largeprompt.studies.shortcontext.study import STUDY

REACTIONS = [
    ("At L = 1", "holds", "exact", {"length": 0}, lambda x: 1.001 * x, "fails"),
    ("isotropic tokens", "fails", "limit_from", {}, lambda x: 0 * x + 5, "holds"),
    ("softmax attention", "fails", "regression_from", {}, lambda x: 0 * x + 5, "holds"),
    ("first order", "fails", "first_order_from", {}, lambda x: 0 * x + 5, "holds"),
    ("one token", "fails", "exact", {"length": 0}, lambda x: 0 * x, "holds"),
]


@pytest.mark.parametrize("reaction", REACTIONS)
def test_rule_reacts(data, reaction):
    reacts(STUDY, data, *reaction)


def test_verdicts_have_numbers_and_controls_fail(data):
    speaks_in_numbers(STUDY, data)


def test_nothing_is_decided_by_nan(data):
    undecided_without_numbers(STUDY, data)


def test_every_rule_has_an_answer_to_few_settings(data):
    answers_to_few_settings(STUDY, data)
