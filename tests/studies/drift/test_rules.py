"""C5, C6: the rules about where long prompts end change their mind when the data does."""

import pytest
from study_checks import answers_to_few_settings, outcome, undecided_without_numbers

from largeprompt.studies.drift.study import STUDY


@pytest.mark.parametrize(
    ("words", "before", "name", "index", "change", "after"),
    [
        ("parameters of a long", "fails", "b", {"length": 1}, lambda x: 1.3 * x, "undecided"),
        ("infinite-prompt flow", "holds", "b", {"length": 2}, lambda x: 1.01 * x, "fails"),
        ("risks at the end", "holds", "risk", {"length": 1}, lambda x: 0 * x + 1, "fails"),
        ("conserved", "fails", "conserved", {}, lambda x: 0 * x, "holds"),
    ],
)
def test_rule_reacts(data, words, before, name, index, change, after):
    assert outcome(STUDY, data, words) == before
    wrong = data.copy(deep=True)
    wrong[name][index] = change(wrong[name][index])
    assert outcome(STUDY, wrong, words) == after


def test_verdicts_have_numbers_and_the_control_fails(data):
    found = STUDY.judge(data)
    assert all(any(letter.isdigit() for letter in verdict.measured) for verdict in found)
    assert [verdict.outcome for verdict in found if verdict.control] == ["fails"]


def test_nothing_is_decided_by_nan(data):
    undecided_without_numbers(STUDY, data, ["b", "risk", "conserved"])


def test_every_rule_has_an_answer_to_few_settings(data):
    answers_to_few_settings(STUDY, data)
