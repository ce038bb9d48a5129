"""The trained transformers in a small setting."""

import pytest

from largeprompt.studies.trained.study import STUDY, TrainedConfig

SMALL = TrainedConfig(
    models=("attention 1x1", "attention 1x2", "blocks 1x1", "shuffled blocks 1x1"),
    dim=1,
    training_lengths=(16, 32),
    test_lengths=(16, 32),
    width=8,
    runs=2,
    batch=16,
    queries=4,
    attention_steps=200,
    attention_rate=0.02,
    blocks_steps=30,
    checkpoints=3,
    test_prompts=150,
    audit_prompts=16,
)


@pytest.fixture(scope="session")
def data():
    """The dataset of the small setting."""
    return STUDY.run(SMALL)
