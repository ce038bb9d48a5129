"""C3: rules about the exponent for random queries change their mind when the data does."""

from study_checks import RuleChecks

from largeprompt.studies.exponent.study import STUDY


class TestRules(RuleChecks):
    study = STUDY
    reactions = (
        ("g(H) rather", "holds", "exponent", {}, lambda x: 1 / (1 + x.square), "fails"),
        ("one c2", "fails", "exponent", {}, lambda x: 0.3 / x.square, "holds"),
        ("faster than 1/L", "fails", "exponent", {"decade_end": 0}, lambda x: x + 0.5, "holds"),
    )
