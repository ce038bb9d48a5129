"""N2: bad settings are refused."""

import pytest
from study_checks import refuses

from largeprompt.studies.discrete.study import STUDY


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
        "paper_steps=1000000",
        "times=1",
        "seed=-1",
    ],
)
def test_bad_settings_are_refused(word):
    refuses(STUDY, word)
