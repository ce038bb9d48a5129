"""F1: rules about short prompts change their mind when the data does."""

from study_checks import RuleChecks

from largeprompt.studies.shortcontext.study import STUDY


class TestRules(RuleChecks):
    study = STUDY
    reactions = (
        ("At L = 1", "holds", "exact", {"length": 0}, lambda x: 1.001 * x, "fails"),
        ("isotropic tokens", "fails", "limit_from", {}, lambda x: 0 * x + 5, "holds"),
        ("softmax attention", "fails", "regression_from", {}, lambda x: 0 * x + 5, "holds"),
        ("first order", "fails", "first_order_from", {}, lambda x: 0 * x + 5, "holds"),
        ("one token", "fails", "exact", {"length": 0}, lambda x: 0 * x, "holds"),
    )
