"""C3: rules about the certificates change their mind when the data does."""

import pytest
from study_checks import answers_to_few_settings, reacts, speaks_in_numbers, undecided_without_numbers

from largeprompt.studies.sharpness.study import STUDY

REACTIONS = [
    ("never below", "holds", "ratio", {"case": 0, "multiple": 3}, lambda x: 0 * x + 0.99, "fails"),
    ("sharp, within", "holds in part", "ratio", {"case": 5}, lambda x: x + 1, "fails"),
    ("leading term alone", "fails", "sign_leading_ratio", {}, lambda x: x + 1, "holds"),
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
