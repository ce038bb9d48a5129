"""N3: rules about training with heavy-tailed inputs."""

from study_checks import outcome

from largeprompt.studies.heavytail.study import STUDY


def test_training_without_gaussian_inputs_is_undecided(data):
    heavy = data.sel(training_df=[1.0])
    assert outcome(STUDY, heavy, "Training with df = ∞") == "undecided"
    assert outcome(STUDY, heavy, "Outside the hypothesis of C5") == "undecided"
