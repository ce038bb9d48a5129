"""P1: rules about the end of training and about SGD, and their control."""

import numpy as np
from study_checks import answers_to_few_settings, outcomes, undecided_without_numbers

from largeprompt.studies.paper.study import STUDY


def test_end_of_training_is_judged_in_both_settings(data):
    assert outcomes(STUDY, data)[0] == ("P1", "undecided")  # training has not ended at t = 2
    ended = data.assign_coords(time=data.time * 150)
    # and far from Bayes that would be a failure
    assert outcomes(STUDY, ended)[0] == ("P1", "fails")
    reached = ended.assign(risk=ended.bayes_risk + 0 * ended.risk)
    assert outcomes(STUDY, reached)[0] == ("P1", "holds")
    stuck = reached.assign(
        risk=reached.risk.where(reached.attention == "softmax", 2 * reached.risk)
    )
    assert outcomes(STUDY, stuck)[0] == ("P1", "fails")  # linear attention counts too
    assert [verdict.control for verdict in STUDY.judge(data)] == [False, False, False, True]
    undecided_without_numbers(STUDY, ended)


def test_sgd_is_judged_where_it_was_run(data):
    off = data.assign(sgd_risk=data.sgd_risk * 1.2)
    assert outcomes(STUDY, off)[2] == ("P1", "fails")
    # one seed does not show its noise
    assert outcomes(STUDY, data.isel(sgd_seed=[0]))[2] == ("P1", "undecided")
    without = data.drop_dims(["sgd_length", "sgd_seed", "sgd_time"])
    assert len(STUDY.judge(without)) == 2
    assert [figure.name for figure in STUDY.drawable(without)] == ["trained", "training"]
    assert np.isfinite(data.sgd_risk).all()


def test_every_rule_has_an_answer_to_few_settings(data):
    answers_to_few_settings(STUDY, data)
