"""The depth study in a small setting."""

import pytest

from largeprompt.studies.depth.study import STUDY, DepthConfig

SMALL = DepthConfig(
    dim=2,
    layers=4,
    spectra=("isotropic",),
    degree=3,
    lengths=(16, 64),
    judged_from=64,
    replicas=(500, 500),
    normalized_dims=(4,),
    normalized_lengths=(32, 64),
    reference=128,
)


@pytest.fixture(scope="session")
def data():
    """Computed once; copy before changing it."""
    return STUDY.run(SMALL)
