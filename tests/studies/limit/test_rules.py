"""C1, C2: rules about the limit and the operator change their mind when the data does."""

from study_checks import RuleChecks

from largeprompt.studies.limit.study import STUDY


class TestRules(RuleChecks):
    study = STUDY
    reactions = (
        (
            "singular Γ",
            "holds",
            "identity_error",
            {"dim": 1, "kind": 1},
            lambda x: x + 1e-6,
            "fails",
        ),
        (
            "responsibility",
            "holds",
            "identity_error",
            {"dim": 1, "kind": 2},
            lambda x: x + 1e-6,
            "fails",
        ),
        ("one operator", "holds", "prompt_error", {"prompt": 0}, lambda x: x + 1e-6, "fails"),
        ("not Gaussian", "fails", "control_gap_quadrature", {}, lambda x: 0 * x, "holds"),
        ("not Gaussian", "fails", "control_gap", {}, lambda x: 1.01 * x, "undecided"),
        ("fall like 1/L", "holds", "exact", {"law": 1, "quantity": 1}, lambda x: 1.1 * x, "fails"),
        ("fall like 1/L", "holds", "exact", {"law": 1, "length": 2}, lambda x: 1000 * x, "fails"),
        ("fall like 1/L", "holds", "first_order", {"law": 1}, lambda x: 1.3 * x, "fails"),
        (
            "drawn prompts",
            "holds",
            "drawn",
            {"law": 4, "drawn_length": 1},
            lambda x: 2 * x,
            "fails",
        ),
    )
