import dataclasses

import pytest

from largeprompt.studies.discrete import descent
from largeprompt.studies.discrete.study import STUDY


@pytest.fixture(scope="session", autouse=True)
def fewer_steps():
    """Fewer steps near the edge of stability, and a shorter end to average over: each costs a
    gradient or a Hessian.
    """
    with pytest.MonkeyPatch.context() as patch:
        # 1.02^130 = 13: a step one per cent too large still shows tenfold
        patch.setattr(descent, "TEST_STEPS", 130)
        patch.setattr(descent, "LAST", 16)
        yield


@pytest.fixture(scope="session")
def small():
    """A small setting."""
    return dataclasses.replace(
        STUDY.quick,
        until=1.5,
        times=21,
        sections=8,
        step_sizes=(0.1, 0.05),
        modified_step_sizes=(0.1, 0.05),
        large_steps=5,
        large_until=20.0,
        batches=((0.05, 64, 24), (0.05, 256, 16), (0.025, 64, 24)),
        paper_steps=20,
    )


@pytest.fixture(scope="session")
def data(small):
    """The study in the small setting."""
    return STUDY.run(small)
