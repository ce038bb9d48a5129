"""E3: rules about spread eigenvalues change their mind when the data does."""

import pytest
from study_checks import answers_to_few_settings, reacts, speaks_in_numbers, undecided_without_numbers

from largeprompt.studies.anisotropy.study import STUDY

REACTIONS = [
    ("two traces", "holds", "exact", {"spectrum": 1, "direction": 0}, lambda x: 1.001 * x, "fails"),
    ("two traces", "holds", "sampled", {"spectrum": 1}, lambda x: 2 * x, "fails"),
    ("alone explain", "fails", "exact", {}, lambda x: 0 * x + 1, "holds"),
    ("random queries", "holds", "random_exponent", {}, lambda x: x - 0.2, "fails"),
    ("length needed", "fails", "needed_length", {}, lambda x: 0 * x + 100, "holds"),
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
