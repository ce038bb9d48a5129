"""Settings of the study `discrete`."""

import math
from typing import Annotated, Self

import pydantic
from pydantic import Field

from largeprompt.runs.settings import (
    AnyLength,
    Count,
    Dimension,
    Distinct,
    Few,
    Increasing,
    Length,
    NonNegative,
    Positive,
    Seed,
    Some,
    settings,
)
from largeprompt.studies.covariances import Covariance
from largeprompt.studies.paper.config import TRAINED, PaperConfig

AtLeastTwo = Annotated[int, Field(ge=2)]
Batch = tuple[Positive, Count, AtLeastTwo]
Case = Annotated[str, Field(pattern=r"^(softmax|linear) [1-9]\d{0,14}$")]
FiniteLength = Annotated[AnyLength, Field(le=10**15)]


@settings
class DiscreteConfig:
    """In-context regression in d = 2 from the theorem's balanced start; the authors' experiment
    beside it.

    Batches are given as (step size, batch size, runs), cases as attention and length.
    ``paper_steps`` counts the steps of the authors' SGD that are run; its law is computed to the
    end of their training.
    """

    dim: Dimension = 2
    covariance: Covariance = "toeplitz"
    noise_variance: NonNegative = 0.1
    lengths: Increasing[AnyLength] = (30, 1000, math.inf)
    until: Positive = 20.0
    step_sizes: Distinct[Positive] = (0.4, 0.2, 0.1, 0.05, 0.025, 0.0125, 0.00625)
    modified_step_sizes: Distinct[Positive] = (0.2, 0.1, 0.05, 0.025)
    times: AtLeastTwo = 201
    settled: Positive = 4000.0
    sections: AtLeastTwo = 16
    rounds: Count = 3
    large_steps: Count = 17
    large_until: Positive = 1000.0
    sgd_until: Positive = 10.0
    sgd_length: Length = 30
    sgd_times: AtLeastTwo = 41
    batches: Some[Batch] = (
        (0.05, 8, 320),
        (0.05, 32, 192),
        (0.05, 128, 32),
        (0.05, 512, 12),
        (0.2, 32, 256),
        (0.1, 32, 256),
        (0.025, 32, 96),
        (0.0125, 32, 32),
    )
    wander_until: Positive = 20.0
    wander_cases: Distinct[Case] = ("softmax 30", "linear 30")
    wander_batch: Batch = (0.04, 64, 64)
    noise_prompts: Annotated[int, Field(ge=8)] = 2**16
    adam_lengths: Distinct[AnyLength] = (1000, math.inf)
    adam_until: Positive = 2.0
    adam_step_sizes: Distinct[Positive] = (1e-2, 5e-3, 2.5e-3, 1e-3, 5e-4)
    sign_until: Positive = 0.05
    sign_step_sizes: Distinct[Positive] = (1.6e-5, 8e-6, 4e-6)
    arrival_lengths: Distinct[FiniteLength] = (30, 1000)
    arrival_step_size: Positive = 1e-2
    arrival_steps: Count = 2500
    paper_length: Length = 20
    paper_until: Positive = TRAINED
    paper_steps: Count = 1250
    paper_runs: AtLeastTwo = 40
    paper_prompts: AtLeastTwo = 2**14
    paper_times: Few = 31
    paper_records: AtLeastTwo = 11
    seed: Seed = 0

    @pydantic.model_validator(mode="after")
    def consistent(self) -> Self:
        """The authors' runs end within the time of their law."""
        if PaperConfig().learning_rate * self.paper_steps > self.paper_until * (1 + 1e-9):
            raise ValueError(
                f"paper_steps {self.paper_steps} must end by paper_until {self.paper_until:g}"
            )
        return self
