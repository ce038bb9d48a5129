import pytest

from largeprompt.studies.paper.config import PaperConfig
from largeprompt.studies.paper.study import STUDY


@pytest.fixture(scope="session")
def data():
    """The study in a small setting."""
    return STUDY.run(
        PaperConfig(
            dim=1,
            lengths=(5, 50),
            until=2.0,
            times=9,
            tolerance=1e-4,
            sgd_lengths=(5,),
            sgd_steps=300,
            sgd_seeds=(0, 1),
        )
    )
