"""N2: the rules for descent, SGD and Adam change their mind when the data does, and their controls
fail.
"""

import numpy as np
import pytest
import xarray as xr
from study_checks import answers_to_few_settings, undecided_without_numbers
from study_checks import outcome as outcome_of

from largeprompt.studies.discrete.study import STUDY


def outcome(data, words):
    return outcome_of(STUDY, data, words)


def test_verdicts_have_numbers_and_controls_fail(data):
    found = STUDY.judge(data)
    assert len(found) == 18
    assert all(any(letter.isdigit() for letter in verdict.measured) for verdict in found)
    controls = {verdict.asked: verdict.outcome for verdict in found if verdict.control}
    assert len(controls) == 3
    assert outcome(data, "one per cent above") == "fails"


@pytest.mark.parametrize(
    ("words", "before", "name", "factor", "after"),
    [
        ("predicted coefficient times", "holds", "gap", 1.1, "fails"),
        ("to second order", "holds", "modified_gap", "step", "fails"),
        ("is a bowl", "holds", "bowl_gap_error", 1e8, "fails"),
        ("descend alike", "holds", "gap", "softmax", "fails"),
        ("largest step at which", "holds", "measured_stable_step", 1.01, "fails"),
        ("one per cent above", "fails", "growth_beyond", 0.0, "holds"),
        ("wander along the slow", "undecided", "predicted_wander", 1e4, "fails"),
        ("wander along the slow", "undecided", "free_wander", 1e4, "holds"),
        ("flow with memory", "holds", "memory_gap", 1e4, "fails"),
        ("steps has Adam crossed", "holds", "predicted_arrival", 1.1, "fails"),
        ("authors' settings", "holds", "paper_spread", 100.0, "fails"),
    ],
)
def test_rules_react(data, words, before, name, factor, after):
    assert outcome(data, words) == before
    scale = factor
    if factor == "step":
        scale = 1 / data.modified_step_size
    elif factor == "softmax":
        scale = xr.where(data.attention == "softmax", 1.001, 1.0)
    assert outcome(data.assign({name: data[name] * scale}), words) == after


def test_sign_flow_and_end_of_adam_are_judged(data):
    assert outcome(data, "tends to 0") == "undecided"  # the steps are too large to extrapolate
    finer = data.assign_coords(sign_step_size=data.sign_step_size / 10)
    finer = finer.assign(early_sign_gap=finer.predicted_sign_gap)
    assert outcome(finer, "tends to 0") == "holds"
    assert (
        outcome(finer.assign(early_sign_gap=2 * finer.predicted_sign_gap), "tends to 0") == "fails"
    )
    same = data.assign(adam_gauge=data.adam_gauge * 0 + data.flow_gauge)
    assert outcome(same, "line of solutions") == "holds"
    assert (
        outcome(data.assign(adam_gauge=data.adam_gauge * 0 + 1.0), "line of solutions") == "fails"
    )


def test_spread_is_judged_only_where_a_wrong_law_would_show(data):
    exact = data.assign(
        sgd_spread=data.predicted_spread,
        sgd_spread_error=0.03 * data.predicted_spread,
        predicted_spread_error=0 * data.predicted_spread,
    )
    asked, control = "runs of SGD spread", "half the batch size"
    assert (outcome(exact, asked), outcome(exact, control)) == ("holds", "fails")
    vague = exact.assign(sgd_spread_error=data.predicted_spread)
    assert (outcome(vague, asked), outcome(vague, control)) == ("undecided", "holds")
    assert outcome(exact.assign(sgd_spread=2 * exact.sgd_spread), asked) == "fails"


def test_edge_of_stability_is_judged_by_length(data):
    asked, even = (
        "stop where the sharpness",
        data.assign(large_sharpness=np.minimum(2 / data.stable_step, 2 / data.large_step)),
    )
    assert outcome(even, asked) == "holds"
    assert (
        outcome(
            even.assign(
                large_sharpness=xr.where(np.isinf(data.length), 1.2, 1.0) * even.large_sharpness
            ),
            asked,
        )
        == "holds in part"
    )
    assert outcome(even.assign(large_sharpness=1.2 * even.large_sharpness), asked) == "fails"


def test_nothing_is_decided_by_nan(data):
    undecided_without_numbers(STUDY, data)


def test_settings_without_the_infinite_prompt_or_linear_attention_are_undecided(data):
    finite = data.sel(length=np.isfinite(data.length))
    assert outcome(finite, "descend alike") == "undecided"
    assert (
        outcome(data.sel(adam_length=np.isfinite(data.adam_length)), "line of solutions")
        == "undecided"
    )
    assert outcome(data.sel(wander_case=["softmax 30"]), "keeps the symmetry") == "undecided"


def test_every_rule_has_an_answer_to_few_settings(data):
    answers_to_few_settings(STUDY, data)
