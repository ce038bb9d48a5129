"""C6: flows end on the hyperbola that they keep, an interrupted one does not count, and bad
settings are refused.
"""

import numpy as np
import pytest
from study_checks import refuses, stores

from largeprompt.studies.covariances import covariance, largest_alpha
from largeprompt.studies.endpoint.parts import EndpointConfig, endpoint, flows
from largeprompt.studies.endpoint.study import STUDY


def test_dataset_is_storable(data, tmp_path):
    stores(STUDY, data, tmp_path)
    assert float(data.b.sel(start="balanced, b(0) < 0").max()) < 0


def test_endpoint_and_bound_of_the_theorem():
    assert endpoint(0.0, 16.0) == pytest.approx(2.0)  # tr(Σ^-2)^(1/4)
    assert largest_alpha(covariance("identity", 16)) == pytest.approx(np.sqrt(2) / 2)


def test_an_interrupted_flow_is_not_taken_for_a_finished_one():
    calls = []

    def stop(message):
        calls.append(message)
        if len(calls) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        flows(EndpointConfig(), "identity", 2, stop)


@pytest.mark.parametrize(
    "word",
    [
        "covariances=toeplit",
        "covariances=identity,identity",
        "dims=0",
        "dims=2,2",
        "dims=",
        "tolerance=0",
    ],
)
def test_bad_settings_are_refused(word):
    refuses(STUDY, word)
