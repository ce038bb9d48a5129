"""The depth study in a small setting."""

import pytest

from largeprompt.studies.depth.config import DepthConfig
from largeprompt.studies.depth.study import STUDY

SMALL = DepthConfig(
    dim=2,
    layers=4,
    spectra=("isotropic",),
    other_score_variances=(0.8,),
    degree=3,
    lengths=(16, 64, 256),
    longest=512,
    scores=1_000_000,
    replicas=(40, 200),
    fitted_from=64,
    normalised_dims=(4, 8),
    normalised_lengths=(64, 128, 256),
    reference=256,
    control_lengths=(4, 32),
    control_replicas=300,
)


@pytest.fixture(scope="session")
def data():
    """The dataset of the small setting."""
    return STUDY.run(SMALL)


@pytest.fixture(scope="session")
def judged(data):
    """Its verdicts."""
    return STUDY.judge(data)
