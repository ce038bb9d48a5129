import dataclasses

import pytest

from largeprompt.studies.discrete.study import STUDY


@pytest.fixture(scope="package")
def small():
    """A small setting."""
    return dataclasses.replace(
        STUDY.quick,
        step_sizes=(0.1, 0.05),
        modified_step_sizes=(0.1, 0.05),
        large_steps=5,
        large_until=20.0,
        batches=((0.05, 64, 24), (0.05, 256, 16), (0.025, 64, 24)),
        paper_steps=20,
    )


@pytest.fixture(scope="package")
def data(small):
    """The study in the small setting."""
    return STUDY.run(small)
