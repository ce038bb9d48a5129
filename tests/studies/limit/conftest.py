"""The study in a small setting."""

import pytest

from largeprompt.studies.limit.config import LimitConfig
from largeprompt.studies.limit.study import STUDY


@pytest.fixture(scope="session")
def data():
    """Computed once; copy before changing it."""
    return STUDY.run(
        LimitConfig(
            dims=(1, 2, 6),
            layers=2,
            prompts=(1, 30),
            points=13,
            drawn_lengths=(10, 30),
            terms=(1, 8),
            shapes=(8.0,),
            separations=(0.5, 0.8),
            skews=(0.1,),
            scaling_points=3,
        )
    )
