"""The study of tokens that are not Gaussian, in a small setting."""

import pytest

from largeprompt.studies.nongaussian.config import NonGaussianConfig
from largeprompt.studies.nongaussian.study import STUDY

CONFIG = NonGaussianConfig(
    terms=(1, 8),
    shapes=(8.0,),
    separations=(0.6, 0.95),
    skews=(0.9,),
    tilts=(0.5, 1.0),
    lengths=(10, 100, 1000),
    replicas=300,
    scaling_points=4,
    correlations=(0.0, 0.9),
    repeats=(2,),
    score_variances=(0.25, 1.0),
    dependent_lengths=(100, 1000),
    dependent_replicas=300,
)


@pytest.fixture(scope="session")
def data():
    """The dataset of the small setting."""
    return STUDY.run(CONFIG)


@pytest.fixture(scope="session")
def judged(data):
    """Its verdicts."""
    return STUDY.judge(data)
