import math

import numpy as np
import pytest

from largeprompt.studies.heavytail import regression
from largeprompt.studies.heavytail.config import HeavyTailConfig
from largeprompt.studies.heavytail.study import STUDY

SMALL = HeavyTailConfig(
    dfs=(math.inf, 20.0, 8.0, 4.0, 2.5, 1.0),
    tilts=(1.0,),
    laplace_tilts=(0.5, 1.1, 2.5),
    lognormal_tilts=(-1.0, 1.0),
    lengths=(10, 100, 1000),
    tokens=400_000,
    most_replicas=2000,
    per_decade=1,
    finest=7,
    training_dfs=(math.inf, 1.0),
    training_length=10,
    steps=60,
    batch_size=16,
    runs=6,
    test_prompts=200,
)


@pytest.fixture(scope="session")
def small():
    """A small setting."""
    return SMALL


@pytest.fixture(scope="session")
def data():
    """The small setting, the risk of training on a coarser table of tilts: good to a few per cent,
    which is what the rules ask.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regression, "TILTS", np.logspace(-3, 4, 12))
        return STUDY.run(SMALL)
