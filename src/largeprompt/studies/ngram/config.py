"""Settings of the study of in-context Markov chains."""

import math
from typing import Annotated, Self

import pydantic
from pydantic import Field

from largeprompt.runs.settings import (
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
    SomeFew,
    TwoOrMore,
    settings,
)

Letters = Annotated[Dimension, Field(ge=2)]
MOST_CONTEXTS = 10_000


@settings
class NgramConfig:
    """Chains with Dirichlet rows (alphabet, order); tokens are windows of order + 1 symbols,
    one-hot; a match scores β.
    """

    cases: Distinct[tuple[Letters, Few]] = (
        (3, 1),
        (5, 1),
        (10, 1),
        (20, 1),
        (3, 2),
        (5, 2),
        (10, 2),
        (3, 3),
        (8, 3),
    )
    concentration: Positive = 1.0
    betas: Increasing[NonNegative] = (0.5, 2.0, 4.0)
    lengths: Increasing[Length] = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
    replicas: TwoOrMore = 2000
    # chains with at most so many contexts get the exact law for two queries
    exact_contexts: Annotated[int, Field(ge=0)] = 30
    # and with at most so many for the final context too
    exact_queries: Annotated[int, Field(ge=0)] = 10
    mixing_alphabet: Letters = 5
    mixing_betas: Increasing[NonNegative] = (0.0, 2.0, 4.0, 8.0)
    holdings: Increasing[Annotated[float, Field(ge=0, lt=1)]] = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98)
    mixing_replicas: TwoOrMore = 2000
    control_beta: Positive = 4.0
    control_replicas: TwoOrMore = 2000
    operator_betas: Annotated[Increasing[Positive], Field(min_length=2)] = (
        0.1,
        0.2,
        0.5,
        1.0,
        2.0,
        3.0,
        4.0,
        6.0,
        8.0,
        10.0,
        12.0,
    )
    operator_queries: Count = 20  # so many contexts of each chain, by falling probability
    training_alphabets: Some[Letters] = (4, 3)  # at orders one and two
    training_chains: Count = 8
    training_lengths: Annotated[Increasing[Length], Field(min_length=2)] = (
        32,
        128,
        512,
        2048,
        8192,
    )
    training_replicas: TwoOrMore = 500
    until: Positive = 1e8
    times: SomeFew = 81
    tube_until: Positive = 100.0
    batches: TwoOrMore = 20
    risk_alphabet: Letters = 5
    risk_concentrations: Distinct[Positive] = (0.5, 1.0, 3.0)
    risk_chains: Count = 400
    risk_replicas: TwoOrMore = 20
    risk_lengths: Increasing[Length] = (32, 128, 512, 2048, 8192)
    risk_betas: Increasing[NonNegative] = (
        0.0,
        1.0,
        2.0,
        3.0,
        4.0,
        5.0,
        6.0,
        7.0,
        8.0,
        9.0,
        10.0,
        11.0,
        12.0,
    )
    seed: Seed = 0

    @pydantic.model_validator(mode="after")
    def _fits_together(self) -> Self:
        if any(
            order * math.log(alphabet) > math.log(MOST_CONTEXTS) + 1e-9
            for alphabet, order in self.cases
        ):
            raise ValueError(
                "cases: alphabet to the power of order, the number of contexts, must be at most "
                f"{MOST_CONTEXTS:,}"
            )
        if self.tube_until > self.until:
            raise ValueError(f"tube_until must be at most until, {self.until:g}")
        if self.training_chains * self.training_replicas < self.batches:
            raise ValueError(
                "batches must be at most training_chains times training_replicas, the number of "
                "prompts"
            )
        return self


def case_name(alphabet: int, order: int) -> str:
    """A chain in words."""
    return f"{alphabet} symbols, order {order}"
