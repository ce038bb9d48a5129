"""The study in a small setting."""

import pytest

from largeprompt.studies.sharpness.parts import SharpnessConfig
from largeprompt.studies.sharpness.study import STUDY


@pytest.fixture(scope="session")
def data():
    """Computed once; copy before changing it."""
    return STUDY.run(SharpnessConfig(points=11))
