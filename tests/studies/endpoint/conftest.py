import pytest

from largeprompt.studies.endpoint.parts import EndpointConfig
from largeprompt.studies.endpoint.study import STUDY


@pytest.fixture(scope="session")
def data():
    """The study in a small setting."""
    return STUDY.run(EndpointConfig(covariances=("toeplitz",), dims=(2,)))
