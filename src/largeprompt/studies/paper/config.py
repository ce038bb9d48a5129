"""The authors' numbers."""

from typing import Self

import pydantic

from largeprompt.runs.settings import (
    Count,
    Dimension,
    Few,
    Increasing,
    Length,
    NonNegative,
    Positive,
    Seed,
    Unique,
    settings,
)

SETTINGS = ("intended", "released")
TRAINED = 300.0  # the authors' 300,000 steps of 1e-3


@settings
class PaperConfig:
    """The authors' numbers: d = 5, noise 0.1, w ~ N(0, I/d), Σ_ij = 0.5^|i-j|, learning rate 1e-3,
    batch 128, 300,000 steps.

    SGD is run at few lengths and stopped early, since each of its runs takes longer than all flows
    together; ``sgd_steps=300_000`` follows it to the end. Without lengths or seeds for it, it is
    left out.
    """

    dim: Dimension = 5
    noise_variance: NonNegative = 0.1
    lengths: Increasing[Length] = (*range(10, 101, 10), *range(200, 1001, 100))
    until: Positive = TRAINED
    times: Few = 61
    tolerance: Positive = 1e-5
    seed: Seed = 0
    sgd_lengths: Unique[Length] = (20,)
    sgd_steps: Count = 16_000
    sgd_seeds: Unique[Seed] = (0, 1)
    learning_rate: Positive = 1e-3
    batch_size: Count = 128

    @pydantic.model_validator(mode="after")
    def consistent(self) -> Self:
        """Runs of SGD are compared with the flow of their length."""
        if not set(self.sgd_lengths) <= set(self.lengths):
            raise ValueError(f"sgd_lengths {self.sgd_lengths} must be among lengths {self.lengths}")
        return self
