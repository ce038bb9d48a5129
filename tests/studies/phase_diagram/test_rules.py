"""C3: rules about the regimes change their mind when the data does."""

from study_checks import RuleChecks

from largeprompt.studies.phase_diagram.study import STUDY


class TestRules(RuleChecks):
    study = STUDY
    reactions = (
        ("agree with those", "holds", "effective_tokens", {}, lambda x: x**2, "fails"),
        ("well inside", "holds", "effective_tokens", {}, lambda x: 2 * x, "fails"),
    )
