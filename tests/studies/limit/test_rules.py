"""C1, C2: rules about the limit and the operator change their mind when the data does."""

import pytest
from study_checks import answers_to_few_settings, reacts, speaks_in_numbers, undecided_without_numbers

from largeprompt.studies.limit.study import STUDY

REACTIONS = [
    ("singular Γ", "holds", "identity_error", {"dim": 1, "kind": 1}, lambda x: x + 1e-6, "fails"),
    ("responsibility", "holds", "identity_error", {"dim": 1, "kind": 2}, lambda x: x + 1e-6, "fails"),
    ("one operator", "holds", "prompt_error", {"prompt": 0}, lambda x: x + 1e-6, "fails"),
    ("not Gaussian", "fails", "control_gap_quadrature", {}, lambda x: 0 * x, "holds"),
    ("not Gaussian", "fails", "control_gap", {}, lambda x: 1.01 * x, "undecided"),
    ("fall like 1/L", "holds", "exact", {"law": 1, "quantity": 1}, lambda x: 1.1 * x, "fails"),
    ("fall like 1/L", "holds", "exact", {"law": 1, "length": 2}, lambda x: 1000 * x, "fails"),
    ("fall like 1/L", "holds", "first_order", {"law": 1}, lambda x: 1.3 * x, "fails"),
    ("drawn prompts", "holds", "drawn", {"law": 4, "drawn_length": 1}, lambda x: 2 * x, "fails"),
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
