"""C5, C7: rules of the tube and of the excess risk change their mind when the data does."""

import numpy as np
from study_checks import answers_to_few_settings, outcomes, undecided_without_numbers

from largeprompt.studies.trajectory.study import STUDY


def test_verdicts_follow_the_data(tubes):
    assert outcomes(STUDY, tubes)[:4] == [
        ("C5", "holds"),
        ("C7", "holds"),
        ("C5", "fails"),
        ("C5", "holds"),
    ]
    assert [verdict.control for verdict in STUDY.judge(tubes)] == [
        False,
        False,
        True,
        False,
        False,
        False,
    ]
    crossed = tubes.assign(softmax_envelope=tubes.softmax_distance / 2)
    assert outcomes(STUDY, crossed)[0] == ("C5", "fails")
    wide = tubes.assign(
        linear_distance=tubes.linear_distance * 0 + 1, linear_envelope=tubes.linear_envelope * 0 + 2
    )
    assert outcomes(STUDY, wide)[1] == ("C7", "fails")
    unknown = tubes.assign(needed_length_softmax=tubes.needed_length_softmax * np.nan)
    assert outcomes(STUDY, unknown)[3] == ("C5", "undecided")
    flat = tubes.assign(softmax_best=tubes.softmax_best * 0 + 0.3)
    assert [outcome for _, outcome in outcomes(STUDY, flat)[4:]] == ["fails", "fails"]


def test_nothing_is_decided_by_nan(tubes):
    undecided_without_numbers(STUDY, tubes)


def test_every_rule_has_an_answer_to_few_settings(tubes):
    answers_to_few_settings(STUDY, tubes)
