"""Rules of the contest of softmax and linear attention (Q1, C7): each goes either way."""

import numpy as np
import pytest
from study_checks import answers_to_few_settings

from largeprompt.runs.judging import judge
from largeprompt.studies.softmax_vs_linear.study import STUDY

LIMIT, ONE, PAIR, HEADS, FREE, TRAINED, STARTS, LOCATION, OUTLIERS, SHIFTS, DRAWN, SAME, BLIND = (
    range(13)
)


def judged(data, index):
    return judge([STUDY.rules[index]], data)[0].outcome


def test_verdicts_of_the_small_setting(data, outcomes):
    """Q1 and C7, all rules."""
    expected = dict.fromkeys(
        (LIMIT, ONE, PAIR, TRAINED, LOCATION, OUTLIERS, SHIFTS, DRAWN, SAME), "holds"
    ) | {STARTS: "undecided"}
    assert {i: outcomes[i] for i in expected} == expected
    assert outcomes[HEADS] == "holds in part"
    assert outcomes[BLIND] == "fails"
    assert [verdict.control for verdict in STUDY.judge(data)] == [i == BLIND for i in range(13)]
    assert {verdict.claim for verdict in STUDY.judge(data)} == {"Q1", "C7"}


@pytest.mark.parametrize(
    ("index", "change", "outcome"),
    [
        (LIMIT, lambda d: d.assign(limit_ratio=1.002 * d.limit_ratio), "fails"),
        (LIMIT, lambda d: d.assign(spectrum_limit=1.002 * d.spectrum_limit), "fails"),
        (ONE, lambda d: d.assign(softmax_best=0.9 * d.linear_best), "fails"),
        (PAIR, lambda d: d.assign(pair_small_tilt=1.01 * d.pair_small_tilt), "fails"),
        (PAIR, lambda d: d.assign(heads_excess=1.01 * d.heads_excess), "fails"),
        (HEADS, lambda d: d.assign(heads_excess=1.2 * d.heads_excess), "fails"),
        (FREE, lambda d: d.assign(free_gain=0.1 * d.free_exact, free_gain_error=1e-4 * d.free_exact), "holds"),
        (FREE, lambda d: d.assign(free_at_optimum=d.free_exact + 9 * d.free_at_optimum_error), "undecided"),
        (TRAINED, lambda d: d.assign(softmax_trained=1.0001 * d.softmax_found), "fails"),
        (STARTS, lambda d: d.assign(start_excess=1.001 * d.start_block + 0 * d.start_excess), "holds"),
        (STARTS, lambda d: d.assign(start_excess=0.9 * d.start_linear + 0 * d.start_excess), "fails"),
        (LOCATION, lambda d: d.assign(location_softmax=0.5 * d.location_softmax), "holds in part"),
        (LOCATION, lambda d: d.assign(location_missed=0 * d.location_missed + 1.1), "fails"),
        (OUTLIERS, lambda d: d.assign(outlier_crossing=1.5 * d.outlier_predicted), "fails"),
        (SHIFTS, lambda d: d.assign(shift_excess=d.shift_excess * (1 + 99 * (d.reader == "pair"))), "fails"),
        (DRAWN, lambda d: d.assign(drawn_mean=d.drawn_exact + 9 * d.drawn_error), "fails"),
        (SAME, lambda d: d.assign(identical_heads=d.identical_heads + 1e-6), "fails"),
        (BLIND, lambda d: d.assign(outlier_unmarked=0.5 * d.outlier_unmarked / d.outlier_unmarked), "holds"),
        (SHIFTS, lambda d: d.assign(shift_floor=np.nan * d.shift_floor), "undecided"),
    ],
)  # fmt: skip
def test_rules_can_go_the_other_way(data, index, change, outcome):
    assert judged(change(data), index) == outcome


def test_every_rule_has_an_answer_to_few_settings(data):
    answers_to_few_settings(STUDY, data)
