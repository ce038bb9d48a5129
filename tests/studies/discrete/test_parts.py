"""N2: predictions come before what is measured, and bad settings are refused."""

import dataclasses

import pytest
from study_checks import refuses, stores

import largeprompt as lp
from largeprompt.runs.study import quiet
from largeprompt.studies.discrete import descent
from largeprompt.studies.discrete.noise import batches
from largeprompt.studies.discrete.study import STUDY
from largeprompt.studies.registry import study


def test_study_is_registered_and_stores(data, tmp_path):
    assert study("discrete").title == STUDY.title
    stores(STUDY, data, tmp_path)


def test_predictions_do_not_depend_on_what_is_measured(small):
    """The same law whatever is drawn after it."""
    fewer = dataclasses.replace(small, batches=((0.05, 32, 8), (0.05, 64, 8)))
    more = dataclasses.replace(small, batches=((0.05, 32, 12), (0.05, 64, 8)))
    first, second = (batches(config, quiet) for config in (fewer, more))
    assert bool((first.predicted_spread == second.predicted_spread).all())
    assert float(first.sgd_spread[0]) != float(second.sgd_spread[0])


def test_a_run_that_is_interrupted_is_not_taken_for_a_finished_one(small, monkeypatch):
    def stop(step):
        if step > 2:
            raise KeyboardInterrupt

    for name, part in (
        ("gradient_descent", lambda: descent.descent(small, "softmax", quiet)),
        ("adam_descent", lambda: descent.sign_gaps(small, quiet)),
    ):
        whole = getattr(lp.training, name)
        monkeypatch.setattr(descent, name, lambda *given, whole=whole, **options: whole(*given, progress=stop, **options))
        with pytest.raises(KeyboardInterrupt, match="interrupted after step"):
            part()


@pytest.mark.parametrize(
    "word",
    [
        "dim=0",
        "covariance=toeplit",
        "noise_variance=-1",
        "lengths=-5",
        "lengths=1000,30",
        "step_sizes=0.1,0.1",
        "batches=[[0.05, 8]]",
        "batches=[[0.05, 8, 1]]",
        "wander_cases=softmax",
        "wander_cases=tanh 30",
        "wander_cases=softmax 0",
        "arrival_lengths=inf",
        "points=2",
        "paper_steps=1000000",
        "times=1",
        "seed=-1",
    ],
)
def test_bad_settings_are_refused(word):
    refuses(STUDY, word)
