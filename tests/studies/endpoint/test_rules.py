"""C6: the endpoint's rules and their control."""

from study_checks import answers_to_few_settings, undecided_without_numbers

from largeprompt.studies.endpoint.study import STUDY


def test_verdicts_follow_the_data(data):
    verdicts = STUDY.judge(data)
    assert [v.outcome for v in verdicts] == ["holds", "holds", "holds", "fails"]
    assert [v.control for v in verdicts] == [False, False, False, True]
    worse = data.assign(A_error=data.A_error + 1e-3)
    assert [v.outcome for v in STUDY.judge(worse)][:3] == ["fails", "fails", "fails"]
    near = data.assign(theorem_error=0 * data.theorem_error)
    assert STUDY.judge(near)[3].outcome == "holds"


def test_nothing_is_decided_by_nan(data):
    undecided_without_numbers(STUDY, data)


def test_every_rule_has_an_answer_to_few_settings(data):
    answers_to_few_settings(STUDY, data)
