"""N3: bad settings are refused."""

import pytest
from study_checks import refuses

from largeprompt.studies.heavytail.study import STUDY


@pytest.mark.parametrize(
    "word",
    [
        "dfs=5",
        "dfs=inf,-1",
        "dfs=inf,5,5",
        "tilts=0",
        "tilts=1,1",
        "laplace_tilts=-1",
        "lognormal_tilts=0",
        "lognormal_scale=0",
        "lengths=-5",
        "lengths=100,10",
        "training_dfs=0",
        "training_length=1",
        "noise_variance=-1",
        "runs=1",
        "decades=1",
    ],
)
def test_bad_settings_are_refused(word):
    refuses(STUDY, word)
