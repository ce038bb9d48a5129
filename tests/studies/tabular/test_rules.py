"""The rules change their mind when the data does."""

from study_checks import RuleChecks, outcome

from largeprompt.studies.tabular.study import STUDY


class TestRules(RuleChecks):
    study = STUDY
    reactions = (
        ("linear regime anywhere", "holds", "affine_error", {}, lambda x: 0 * x + 1, "fails"),
        ("first layer", "holds in part", "found", {}, lambda x: 100 * x, "fails"),
        ("replaced without loss", "holds", "cross_entropy_change", {}, lambda x: x + 1, "fails"),
        ("best single head", "fails", "squared_error", {}, lambda x: 0 * x, "holds"),
        ("best predictor", "fails", "cross_entropy", {}, lambda x: x - 1, "holds"),
        ("foretell", "fails", "foretold", {}, lambda x: 0 * x + 1, "holds"),
        ("stay the same", "fails", "score_variance", {}, lambda x: 0 * x + 1, "holds"),
        ("shuffled", "fails", "shuffled_accuracy", {}, lambda x: x + 0.5, "holds"),
    )


def test_known_accuracies_are_asked_for(data):
    column = {"known_accuracy": ("kind", [0.973, 0.966]), "fold_spread": ("kind", [0.013, 0.013])}
    asked = (
        data.assign(column).assign(fold_accuracy=("kind", [0.96, 0.98])).assign_attrs(data.attrs)
    )
    assert outcome(STUDY, asked, "known by its accuracies") == "holds"
    asked["fold_accuracy"] = ("kind", [0.90, 0.98])
    assert outcome(STUDY, asked, "known by its accuracies") == "fails"


def test_every_head_follows_where_found_is_expected(data):
    same = data.assign(found=1.1 * data.law)
    assert outcome(STUDY, data, "error of every head") == "fails"
    assert outcome(STUDY, same, "error of every head") == "holds"


def test_audit_order_is_best_where_it_costs_least(data):
    wrong = data.copy(deep=True)
    for place, name in enumerate(("audit", "random", "reverse")):
        wrong.change.loc[{"order": name}] = 0.1 * place
    assert outcome(STUDY, wrong, "audit's order") == "holds"
