"""The study in a small setting."""

import pytest

from largeprompt.studies.limit.parts import LimitConfig
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
            drawn_lengths=(30, 300),
            replicas=400,
        )
    )
