"""The rules change their mind when the data does."""

import numpy as np
from study_checks import RuleChecks, outcome

from largeprompt.studies.real_models.study import STUDY

ONES = ("score_variance", {}, lambda x: 0 * x + 1)


class TestRules(RuleChecks):
    study = STUDY
    reactions = (
        (
            "mean and covariance of",
            "holds in part",
            "affine_error",
            {},
            lambda x: 0 * x + 1,
            "fails",
        ),
        (
            "of which the law foretells",
            "holds in part",
            "affine_error",
            {"length": [1, 2]},
            lambda x: 0 * x + 0.1,
            "holds",
        ),
        ("score variance stay", "fails", *ONES, "holds"),
        ("state of constant size", "holds in part", "state_change", {}, lambda x: x + 1, "fails"),
        ("state of constant size", "holds in part", "state_size", {}, lambda x: x + 60, "fails"),
        (
            "state of constant size",
            "holds in part",
            "state_change",
            {"state": 0},
            lambda x: x + 1,
            "holds",
        ),
        ("random order", "fails", "shuffled_loss", {}, lambda x: 0 * x, "holds"),
        ("layer by layer", "holds in part", "table_found", {}, lambda x: 100 * x, "fails"),
    )


def test_the_law_holds_layer_by_layer_where_found_is_expected(data):
    assert (
        outcome(STUDY, data.assign(table_found=1.1 * data.table_law), "layer by layer") == "holds"
    )


def with_losses(data, **losses):
    """Losses of the trial by factor, with differences between texts that are small."""
    names = {"head": "exact by head", "mean": "exact, mean", "log": "log-n", "yarn": "YaRN"}
    wrong = data.copy(deep=True)
    wrong.long_loss[:] = 3.0 + 0.1 * np.arange(2)[:, None, None]
    for name, value in losses.items():
        wrong.long_loss.loc[{"scaling": names[name]}] = wrong.long_loss.sel(scaling="none") + value
    wrong.long_loss[0] += 1e-4 * np.arange(5)
    return wrong


def test_the_exact_factor_must_be_better_beyond_chance(data):
    words = "exact factor on each head"
    assert outcome(STUDY, with_losses(data, head=-0.1, mean=-0.05, log=-0.02), words) == "holds"
    even = with_losses(data, head=-0.02, mean=-0.05, log=-0.05, yarn=-0.03)
    assert outcome(STUDY, even, words) == "holds in part"
    worse = with_losses(data, head=-0.02, mean=-0.03, log=-0.05, yarn=-0.03)
    assert outcome(STUDY, worse, words) == "fails"
    assert outcome(STUDY, even.isel(long_text=[0]), words) == "undecided"


def test_known_accuracies_are_asked_for(data):
    columns = {"known_accuracy": [0.973, 0.966], "known_error": [0.013, 0.013]}
    asked = data.assign({name: ("set", each) for name, each in columns.items()})
    asked = asked.assign_coords(set=["iris", "wine"]).assign_attrs(data.attrs)
    right = asked.assign(fold_accuracy=("set", [0.96, 0.98]))
    assert outcome(STUDY, right, "known by its accuracies") == "holds"
    wrong = asked.assign(fold_accuracy=("set", [0.90, 0.98]))
    assert outcome(STUDY, wrong, "known by its accuracies") == "fails"


def test_a_part_that_is_left_out_is_not_judged(data):
    names = [name for name in data.data_vars if "table" in name]
    claims = {verdict.claim for verdict in STUDY.judge(data.drop_vars(names))}
    assert claims == {"language", "temperature"}
