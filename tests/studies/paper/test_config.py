"""P1: bad settings are refused."""

import pytest
from study_checks import refuses

from largeprompt.studies.paper.study import STUDY


@pytest.mark.parametrize(
    "word",
    [
        "dim=0",
        "lengths=-5",
        "lengths=50,10",
        "lengths=10.5",
        "noise_variance=-1",
        "sgd_lengths=33",
        "sgd_seeds=0,0",
        "learning_rate=0",
        "batch_size=0",
    ],
)
def test_bad_settings_are_refused(word):
    refuses(STUDY, word)
