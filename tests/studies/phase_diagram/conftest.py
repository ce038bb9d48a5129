"""The study in a small setting."""

import pytest

from largeprompt.studies.phase_diagram.parts import PhaseDiagramConfig
from largeprompt.studies.phase_diagram.study import STUDY


@pytest.fixture(scope="session")
def data():
    """Computed once; copy before changing it."""
    return STUDY.run(PhaseDiagramConfig(variances=17, lengths=13))
