"""C5, C6: the rules about where long prompts end change their mind when the data does."""

from study_checks import RuleChecks, undecided_without_numbers

from largeprompt.studies.drift.study import STUDY


class TestRules(RuleChecks):
    study = STUDY
    reactions = (
        ("parameters of a long", "fails", "b", {"length": 1}, lambda x: 1.3 * x, "undecided"),
        ("infinite-prompt flow", "holds", "b", {"length": 2}, lambda x: 1.01 * x, "fails"),
        ("risks at the end", "holds", "risk", {"length": 1}, lambda x: 0 * x + 1, "fails"),
        ("conserved", "fails", "conserved", {}, lambda x: 0 * x, "holds"),
    )

    def test_nothing_is_decided_by_nan(self, data):
        undecided_without_numbers(STUDY, data, ["b", "risk", "conserved"])
