"""Settings of the study `discrete`, and the problem that its parts share."""

import math
from typing import Annotated, Any, Self

import pydantic
import torch
from pydantic import Field
from torch import Tensor

from largeprompt.attention import SoftmaxAttention
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
from largeprompt.studies.covariances import Covariance, F, block_start, covariance, largest_alpha
from largeprompt.studies.paper import TRAINED, PaperConfig
from largeprompt.training import LinearRegression

AtLeastTwo = Annotated[int, Field(ge=2)]
Batch = tuple[Positive, Count, AtLeastTwo]


@settings
class DiscreteConfig:
    """In-context regression from the theorem's balanced start, and the authors' experiment."""

    dim: Dimension = 2
    covariance: Covariance = "toeplitz"  # covariance of the inputs
    noise_variance: NonNegative = 0.1  # variance of the noise in the answers
    lengths: Increasing[AnyLength] = (30, 1000, math.inf)
    until: Positive = 20.0  # time at which descent ends
    step_sizes: Distinct[Positive] = (0.4, 0.2, 0.1, 0.05, 0.025, 0.0125)  # step sizes of descent
    times: AtLeastTwo = 201  # recorded times
    settled: Positive = 4000.0  # time after which the flow has settled
    sections: AtLeastTwo = 16  # step sizes tried in a round of bisection
    rounds: Count = 3  # rounds of bisection
    sgd_until: Positive = 10.0  # time at which SGD ends
    sgd_length: Length = 30  # prompt length of SGD
    sgd_times: AtLeastTwo = 41  # recorded times of SGD
    # step size, batch size and runs of SGD
    batches: Some[Batch] = (
        (0.05, 8, 128),
        (0.05, 32, 96),
        (0.05, 128, 32),
        (0.1, 32, 96),
        (0.025, 32, 48),
    )
    # prompts drawn for the covariance of gradients
    noise_prompts: Annotated[int, Field(ge=16)] = 2**15
    adam_until: Positive = 2.0  # time at which Adam ends
    adam_step_sizes: Distinct[Positive] = (1e-2, 5e-3, 2.5e-3, 1e-3)  # step sizes of Adam
    paper_length: Length = 20  # prompt length of the authors' SGD
    paper_until: Positive = TRAINED  # time at which its law ends
    paper_steps: Count = 600  # steps of it that are run
    paper_runs: AtLeastTwo = 24  # runs of it
    paper_prompts: Annotated[int, Field(ge=16)] = 2**14  # prompts drawn for its law
    paper_times: Few = 61  # times of its law
    seed: Seed = 0

    @pydantic.model_validator(mode="after")
    def consistent(self) -> Self:
        """The authors' runs end within the time of their law."""
        if PaperConfig().learning_rate * self.paper_steps > self.paper_until * (1 + 1e-9):
            raise ValueError(
                f"paper_steps {self.paper_steps} must end by paper_until {self.paper_until:g}"
            )
        return self


def problem(config: DiscreteConfig) -> tuple[LinearRegression, SoftmaxAttention]:
    """The task with w ~ N(0, I/d), and the balanced start at nine tenths of the theorem's bound."""
    sigma, d = covariance(config.covariance, config.dim), config.dim
    alpha = 0.9 * largest_alpha(sigma)
    task = LinearRegression(sigma, torch.eye(d, dtype=F) / d, config.noise_variance)
    return task, SoftmaxAttention(*block_start(d, alpha, alpha))


def path_at(flow: Any, times: Tensor, until: float) -> Tensor:
    """θ of a flow at the times of a run, whose last may pass the end by rounding."""
    return torch.stack([flow.theta(min(float(time), until)) for time in times])
