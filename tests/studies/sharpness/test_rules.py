"""C3: rules about the certificates change their mind when the data does."""

from study_checks import RuleChecks

from largeprompt.studies.sharpness.study import STUDY


class TestRules(RuleChecks):
    study = STUDY
    reactions = (
        (
            "never below",
            "holds",
            "ratio",
            {"case": 0, "multiple": 3},
            lambda x: 0 * x + 0.99,
            "fails",
        ),
        ("sharp, within", "holds in part", "ratio", {"case": 5}, lambda x: x + 1, "fails"),
        ("leading term alone", "fails", "sign_leading_ratio", {}, lambda x: x + 1, "holds"),
    )
