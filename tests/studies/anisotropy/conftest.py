"""The study in a small setting."""

import pytest

from largeprompt.studies.anisotropy.parts import AnisotropyConfig
from largeprompt.studies.anisotropy.study import STUDY


@pytest.fixture(scope="session")
def data():
    """Computed once; copy before changing it."""
    return STUDY.run(
        AnisotropyConfig(
            dim=6,
            spectra=("condition 1", "condition 1e4", "spike 0.5"),
            points=17,
            sampled_lengths=(10, 100),
            spikes=(0.2, 0.75),
            decades=(2, 9, 10),
        )
    )
