"""N3: rules change their mind when the data does, and the control fails."""

from study_checks import RuleChecks, SettingChecks

from largeprompt.studies.heavytail.study import STUDY


class TestRules(RuleChecks):
    study = STUDY
    reactions = (
        ("finite df", "fails", "breakdown", {}, lambda x: 0 * x + 5, "undecided"),
        ("reach the Gaussian risk", "fails", "run_risk", {}, lambda x: 0 * x + 0.1, "holds"),
        ("drawn prompts agree", "holds", "sampled", {"case": 2}, lambda x: 1.5 * x, "fails"),
        ("its largest token", "holds", "of_largest", {"case": 3}, lambda x: x / 2, "fails"),
        ("its largest token", "holds", "asymptote", {"case": 2}, lambda x: x / 2, "fails"),
        ("Laplace", "holds", "curve", {"case": 4}, lambda x: x * 0 + 0.1, "fails"),
        ("Laplace", "holds", "curve", {"case": 6}, lambda x: x / 2, "fails"),
        ("Gaussian tokens of the same", "fails", "sampled", {}, lambda x: 0 * x, "holds"),
    )


class TestSettings(SettingChecks):
    study = STUDY
    refused = (
        "dfs=5",
        "dfs=inf,-1",
        "dfs=inf,5,5",
        "tilts=0",
        "laplace_tilts=-1",
        "lengths=100,10",
        "training_dfs=4",
        "training_length=1",
        "noise_variance=-1",
        "runs=1",
        "decades=1",
    )
