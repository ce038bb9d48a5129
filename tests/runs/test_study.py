"""How a study is judged."""

import pytest
import xarray as xr
from toy_studies import STUDY

from largeprompt.runs.study import Study, Verdict


def judged(rule):
    study = Study(STUDY.name, "t", "Is it so?", "m", STUDY.config, STUDY.quick, STUDY.cells, STUDY.compute, STUDY.combine, rule)
    return study.judge(xr.Dataset())


def test_verdicts_on_nan_are_undecided():
    fine, empty = Verdict("C1", "?", "holds", "0.5 of Hernando"), Verdict("C1", "?", "holds", "from nan to nan tokens")
    assert [each.outcome for each in judged(lambda data: [fine, empty])] == ["holds", "undecided"]


@pytest.mark.parametrize("error", [IndexError("-1"), KeyError("inf"), ValueError("zero-size"), ZeroDivisionError("0")])
def test_a_rule_with_nothing_to_look_at_is_undecided(error):
    def rule(data):
        raise error

    (only,) = judged(rule)
    assert only.outcome == "undecided"
    assert "nothing is judged" in only.measured


def test_a_rule_that_is_broken_is_told():
    def rule(data):
        raise AttributeError("typo")

    with pytest.raises(AttributeError):
        judged(rule)
