"""The rules change their mind when the data does."""

import numpy as np
from study_checks import RuleChecks, outcome

from largeprompt.studies.languagemodel.study import STUDY


class TestRules(RuleChecks):
    study = STUDY
    reactions = (
        ("linear regime anywhere", "holds", "affine_error", {}, lambda x: 0 * x + 1, "fails"),
        (
            "of which the law foretells",
            "holds in part",
            "affine_error",
            {"length": [1, 2]},
            lambda x: 0 * x + 0.1,
            "holds",
        ),
        ("score variance stay", "fails", "score_variance", {}, lambda x: 0 * x + 1, "holds"),
        ("as good as independent", "fails", "effective_share", {}, lambda x: 0 * x + 0.9, "holds"),
        (
            "within the tolerance be replaced",
            "holds",
            "within_change",
            {},
            lambda x: x + 1,
            "fails",
        ),
        ("random order", "fails", "shuffled_loss", {}, lambda x: 0 * x, "holds"),
        ("serve a quarter", "holds", "state_change", {}, lambda x: x + 1, "fails"),
        ("serve a quarter", "holds", "state_size", {}, lambda x: x + 60, "holds in part"),
        (
            "window of the same size",
            "holds",
            "state_error",
            {"components": 1},
            lambda x: 0 * x + 1,
            "fails",
        ),
    )


def test_the_law_holds_where_found_is_expected(data):
    assert outcome(STUDY, data, "exact law") == "fails"
    assert outcome(STUDY, data.assign(law_error=1.1 * data.affine_error), "exact law") == "holds"


def test_shape_is_the_gap_where_it_is_all_of_it(data):
    wrong = data.copy(deep=True)
    values = {"seen": 0.5, "foretold": -0.5, "variance": 0.1, "shape": 0.9, "order": 0.0}
    for name, value in values.items():
        wrong.explained.loc[{"term": name}] = value
    assert outcome(STUDY, wrong, "shape of the keys") == "holds"
    wrong.explained.loc[{"term": "shape", "first": "read"}] = 0.2
    assert outcome(STUDY, wrong, "shape of the keys") == "holds in part"
    wrong.explained.loc[{"term": "shape"}] = 0.2
    assert outcome(STUDY, wrong, "shape of the keys") == "fails"


def test_foretold_errors_are_compared_with_those_seen(data):
    later = data.length > data.made_at
    same = data.assign(shape_foretold=(1.1 * data.affine_error).where(later))
    assert outcome(STUDY, data, "law and shape") == "undecided"  # no prefix is long enough
    assert outcome(STUDY, same, "law and shape") == "holds"
    far = data.assign(
        shape_foretold=(3.0 * data.affine_error).where(later),
        law_foretold=data.affine_error.where(later),
    )
    assert outcome(STUDY, far, "law and shape") == "fails"


def test_audit_order_is_best_where_it_costs_least(data):
    wrong = data.copy(deep=True)
    for place, name in enumerate(("audit", "random", "reverse")):
        wrong.change.loc[{"order": name}] = 0.1 * place
    wrong.change[{"text": 0}] = np.nan
    assert outcome(STUDY, wrong, "audit's order") == "holds"
    wrong.change.loc[{"order": "reverse"}] = 0.05
    assert outcome(STUDY, wrong, "audit's order") == "holds in part"
    wrong.change.loc[{"order": "random"}] = -0.1
    assert outcome(STUDY, wrong, "audit's order") == "fails"


def test_nothing_is_said_of_heads_where_none_is_within_the_tolerance(data):
    words = "one per cent of loss?"
    cheap = data.assign(
        within_change=0 * data.within_change, within_count=1 + 0 * data.within_count
    )
    assert outcome(STUDY, cheap, f"replaced by mean and covariance at {words}") == "holds"
    none = cheap.assign(within_count=0 * data.within_count)
    assert outcome(STUDY, none, f"replaced by mean and covariance at {words}") == "undecided"
