"""The study in a small setting."""

import pytest

from largeprompt.studies.exponent.parts import ExponentConfig
from largeprompt.studies.exponent.study import STUDY


@pytest.fixture(scope="session")
def data():
    """Computed once; copy before changing it."""
    return STUDY.run(ExponentConfig(squares=(0.3, 1.0, 2.0), dims=(1, 4), decades=(2, 9, 10)))
