"""The study of in-context Markov chains in a small setting."""

import pytest

from largeprompt.studies.ngram.config import NgramConfig
from largeprompt.studies.ngram.study import STUDY

SMALL = NgramConfig(
    cases=((3, 1), (2, 2), (2, 3)),
    betas=(0.5, 2.0),
    lengths=(32, 64, 128, 256, 512),
    replicas=600,
    exact_contexts=4,
    exact_queries=3,
    mixing_alphabet=3,
    mixing_betas=(0.0, 6.0),
    holdings=(0.0, 0.8),
    mixing_replicas=600,
    control_replicas=600,
    operator_betas=(0.1, 0.2, 4.0, 12.0),
    operator_queries=4,
    training_alphabets=(3, 2),
    training_chains=1,
    training_lengths=(128, 256, 512),
    training_replicas=200,
    times=17,
    batches=4,
    risk_alphabet=3,
    risk_concentrations=(3.0,),
    risk_chains=60,
    risk_replicas=20,
    risk_lengths=(32, 512),
    risk_betas=(0.0, 3.0, 6.0),
)


@pytest.fixture(scope="session")
def data():
    """The dataset of the small setting."""
    return STUDY.run(SMALL)
