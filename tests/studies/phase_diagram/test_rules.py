"""C3: rules about the regimes change their mind when the data does."""

import pytest
from study_checks import answers_to_few_settings, reacts, speaks_in_numbers, undecided_without_numbers

from largeprompt.studies.phase_diagram.study import STUDY

REACTIONS = [
    ("agree with those", "holds", "effective_tokens", {}, lambda x: x**2, "fails"),
    ("well inside", "holds", "effective_tokens", {}, lambda x: 2 * x, "fails"),
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
