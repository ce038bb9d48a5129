"""E3: rules about spread eigenvalues change their mind when the data does."""

from study_checks import RuleChecks

from largeprompt.studies.anisotropy.study import STUDY


class TestRules(RuleChecks):
    study = STUDY
    reactions = (
        (
            "two traces",
            "holds",
            "exact",
            {"spectrum": 1, "direction": 0},
            lambda x: 1.001 * x,
            "fails",
        ),
        ("two traces", "holds", "sampled", {"spectrum": 1}, lambda x: 2 * x, "fails"),
        ("alone explain", "fails", "exact", {}, lambda x: 0 * x + 1, "holds"),
        ("random queries", "holds", "random_exponent", {}, lambda x: x - 0.2, "fails"),
        ("length needed", "fails", "needed_length", {}, lambda x: 0 * x + 100, "holds"),
    )
