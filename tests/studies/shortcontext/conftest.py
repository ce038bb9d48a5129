"""The study in a small setting."""

import pytest

from largeprompt.studies.shortcontext.parts import ShortContextConfig
from largeprompt.studies.shortcontext.study import STUDY


@pytest.fixture(scope="session")
def data():
    """Computed once; copy before changing it."""
    return STUDY.run(
        ShortContextConfig(
            dims=(1, 4),
            score_variances=(0.5, 2.0),
            conditions=(1e4,),
            condition_dim=4,
            regression_dim=2,
            regression_conditions=(1.0, 1e4),
            per_decade=4,
            regression_per_decade=2,
        )
    )
