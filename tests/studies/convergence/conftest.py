"""The study in a small setting."""

import pytest

from largeprompt.studies.convergence.config import ConvergenceConfig
from largeprompt.studies.convergence.study import STUDY

SMALL = ConvergenceConfig(
    points=17,
    drawn_lengths=(1, 10, 100),
    replicas=200,
    derivative_lengths=(10,),
    fitted=(10, 10_000),
    spectra=("condition 1", "condition 10000", "spike 0.5"),
    spectrum_dim=6,
    spectrum_points=13,
    spectrum_drawn_lengths=(10, 100),
    short_dims=(1, 16),
    short_variances=(0.5, 2.0),
    short_longest=1000,
    short_per_decade=2,
    regression_dim=2,
    regression_conditions=(10, 100),
    regression_per_decade=1,
    sharpness_variances=(0.8, 4.0),
    sharpness_tilts=(0.3, 1.0),
    sharpness_points=5,
    regime_variances=21,
    regime_lengths=25,
)


@pytest.fixture(scope="session")
def data():
    """Computed once; copy before changing it."""
    return STUDY.run(SMALL)
