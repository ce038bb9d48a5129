"""The contest of softmax and linear attention in a small setting."""

import dataclasses

import pytest

from largeprompt.studies.softmax_vs_linear.study import STUDY


@pytest.fixture(scope="session")
def data():
    """Even smaller than the quick setting."""
    return STUDY.run(
        dataclasses.replace(
            STUDY.quick, dims=(5,), noises=(0.0,), lengths=(20, 1_000_000_000), largest_scale=6.5
        )
    )


@pytest.fixture(scope="session")
def outcomes(data):
    """Outcomes of its rules, in order."""
    return [verdict.outcome for verdict in STUDY.judge(data)]
