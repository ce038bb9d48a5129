"""C3: rules about the exponent for random queries change their mind when the data does."""

import pytest
from study_checks import answers_to_few_settings, reacts, speaks_in_numbers, undecided_without_numbers

from largeprompt.studies.exponent.study import STUDY

REACTIONS = [
    ("g(H) rather", "holds", "exponent", {}, lambda x: 1 / (1 + x.square), "fails"),
    ("one c2", "fails", "exponent", {}, lambda x: 0.3 / x.square, "holds"),
    ("faster than 1/L", "fails", "exponent", {"decade_end": 0}, lambda x: x + 0.5, "holds"),
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
