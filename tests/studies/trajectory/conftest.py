import pytest

from largeprompt.studies.trajectory.parts import TrajectoryConfig
from largeprompt.studies.trajectory.study import STUDY


@pytest.fixture(scope="session")
def tubes():
    """The study in a small setting."""
    return STUDY.run(
        TrajectoryConfig(
            dim=2,
            lengths=(30, 100_000),
            until=4.0,
            times=13,
            excess_dims=(2,),
            excess_decades=(1, 4),
            targets=(1e-1, 1e-2),
        )
    )
