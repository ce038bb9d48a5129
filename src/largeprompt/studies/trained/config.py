"""Settings of the study of trained transformers, and what the names of models mean."""

import re
from typing import Annotated, Literal, NamedTuple, Self

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
    Replicas,
    Seed,
    settings,
)

Kind = Literal["attention", "blocks"]
MODEL = r"^(shuffled )?(attention|blocks) ([1-9]\d*)x([1-9]\d*)$"
Model = Annotated[str, Field(pattern=MODEL)]
# whether the machine has it is seen when it is used
Device = Annotated[str, Field(pattern=r"^(cpu|mps|xpu|cuda)(:\d+)?$")]


class Shape(NamedTuple):
    """What the name of a model says."""

    kind: Kind
    layers: int
    heads: int
    shuffled: bool

    @classmethod
    def named(cls, name: str) -> Self:
        """The shape of 'attention LxH' or 'blocks LxH' (layers, heads), after 'shuffled
        ' or not.
        """
        found = re.fullmatch(MODEL, name)
        if found is None:
            raise ValueError(
                f"{name!r} is not 'attention LxH' or 'blocks LxH' (layers, heads), after 'shuffled "
                "' or not"
            )
        return cls(
            "attention" if found[2] == "attention" else "blocks",
            int(found[3]),
            int(found[4]),
            found[1] is not None,
        )


@settings
class TrainedConfig:
    """Σ = I, W = I/d; models are 'KIND LAYERSxHEADS', trained in ``runs`` copies on prompts of all
    training lengths at once.

    A model that is named 'shuffled' is trained on prompts in which every token has a task vector of
    its own.
    """

    models: Distinct[Model] = (
        "blocks 4x2",
        "blocks 2x2",
        "attention 4x2",
        "attention 2x2",
        "blocks 1x2",
        "attention 1x2",
        "attention 1x1",
        "shuffled blocks 1x2",
    )
    dim: Dimension = 3
    noise_variance: NonNegative = 0.1
    training_lengths: Increasing[Length] = (8, 16, 32)
    test_lengths: Increasing[Length] = (4, 8, 16, 32, 64, 128, 256)
    width: Count = 32
    runs: Count = 4
    batch: Count = 32
    queries: Count = 9
    attention_steps: Count = 2000
    attention_rate: Positive = 0.01
    blocks_steps: Count = 1000
    blocks_rate: Positive = 0.003
    checkpoints: Few = 6
    test_prompts: Replicas = 1024
    test_queries: Count = 4
    audit_prompts: Replicas = 128
    device: Device = "cpu"
    seed: Seed = 0

    @pydantic.model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.queries < len(self.training_lengths):
            raise ValueError(
                f"queries must be at least one for each of {len(self.training_lengths)} "
                "training_lengths"
            )
        for name in self.models:
            shape = Shape.named(name)
            if shape.kind == "blocks" and self.width % shape.heads:
                raise ValueError(f"width must be a multiple of the {shape.heads} heads of {name!r}")
        return self
