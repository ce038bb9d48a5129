"""The study in a small setting."""

import pytest

from largeprompt.studies.convergence.parts import ConvergenceConfig
from largeprompt.studies.convergence.study import STUDY


@pytest.fixture(scope="session")
def data():
    """Computed once; copy before changing it."""
    return STUDY.run(
        ConvergenceConfig(
            points=17,
            sampled_lengths=(1, 10, 30, 100, 300),
            fitted=(10, 300),
            replicas=1000,
            bootstraps=100,
        )
    )
