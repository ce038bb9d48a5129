import math

import pytest

from largeprompt.studies.drift.parts import DriftConfig
from largeprompt.studies.drift.study import STUDY


@pytest.fixture(scope="session")
def data():
    """The study in a small setting."""
    return STUDY.run(DriftConfig(lengths=(30.0, 100.0, math.inf), until=400.0, times=31))
