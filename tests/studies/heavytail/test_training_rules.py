"""N3: rules about training with heavy-tailed inputs."""

from largeprompt.studies.heavytail.study import STUDY


def outcomes(data):
    return {verdict.asked.split("?")[0]: verdict for verdict in STUDY.judge(data)}


def find(data, words):
    return next(verdict for asked, verdict in outcomes(data).items() if words in asked)


def test_training_without_gaussian_inputs_is_undecided(data):
    heavy = data.sel(training_df=[1.0])
    assert find(heavy, "Training with df = inf").outcome == "undecided"
    assert find(heavy, "Outside the hypothesis of C5").outcome == "undecided"
