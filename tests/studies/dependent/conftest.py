"""The study of dependent tokens in a small setting."""

import pytest

from largeprompt.studies.dependent.study import STUDY, DependentConfig

SMALL = DependentConfig(
    cases=((3, 1), (2, 2)),
    betas=(0.5, 2.0),
    lengths=(8, 64, 10_000),
    drawn_lengths=(8,),
    mixing_alphabet=3,
    mixing_betas=(0.0, 6.0),
    holdings=(0.0, 0.8),
    operator_betas=(0.1, 0.2, 12.0),
    training_alphabet=2,
    training_chains=1,
    training_lengths=(128, 256, 512),
    times=9,
    correlations=(0.5,),
    score_variances=(0.25, 1.0),
    correlated_length=1000,
    correlated_replicas=1000,
)


@pytest.fixture(scope="session")
def data():
    """Computed once; copy before changing it."""
    return STUDY.run(SMALL)
