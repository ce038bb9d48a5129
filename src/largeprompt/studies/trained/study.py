"""Small transformers trained on in-context regression: is the theory of one layer what they do?"""

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
    Replicas,
    Seed,
    settings,
)
from largeprompt.runs.study import Part, Study
from largeprompt.studies.claims import claims
from largeprompt.studies.trained.figures import FIGURES
from largeprompt.studies.trained.rules import RULES
from largeprompt.studies.trained.theory import theory
from largeprompt.studies.trained.transformer import NAME, Architecture
from largeprompt.studies.trained.trial import by_model, trial
from largeprompt.studies.variables import labels


@settings
class TrainedConfig:
    """Models 'attention LxH' or 'blocks LxH' (layers, heads), trained on all lengths at once."""

    # architecture, layers x heads
    models: Distinct[Annotated[str, Field(pattern=NAME)]] = (
        "blocks 4x2",
        "blocks 2x2",
        "attention 2x2",
        "attention 1x2",
        "attention 1x1",
        "shuffled blocks 1x2",
    )
    dim: Dimension = 3
    noise_variance: NonNegative = 0.1  # variance of the noise in the answers
    training_lengths: Increasing[Length] = (8, 16, 32)  # prompt lengths in training
    test_lengths: Increasing[Length] = (8, 16, 32, 64, 128)  # prompt lengths in tests
    width: Count = 32  # width of the blocks
    runs: Count = 4  # copies of each model, from other seeds
    batch: Count = 32  # prompts in a step of training
    queries: Count = 9  # queries of each prompt in training
    attention_steps: Count = 2000  # training steps of models without MLP
    attention_rate: Positive = 0.01  # learning rate of models without MLP
    blocks_steps: Count = 1000  # training steps of models with MLP
    blocks_rate: Positive = 0.003  # learning rate of models with MLP
    checkpoints: Few = 6  # times in training at which models are tested
    test_prompts: Replicas = 1024  # prompts of a test
    test_queries: Count = 4  # queries of each prompt in tests
    audit_prompts: Replicas = 128  # prompts on which heads are audited
    seed: Seed = 0

    @pydantic.model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.queries < len(self.training_lengths):
            raise ValueError("queries must be at least one for each of training_lengths")
        if self.training_lengths[-1] not in self.test_lengths:
            raise ValueError(f"test_lengths must have {self.training_lengths[-1]}")
        for name in self.models:
            shape = Architecture.named(name, self.dim + 1, self.width)
            if shape.kind == "blocks" and self.width % shape.heads:
                raise ValueError(f"width must be a multiple of the {shape.heads} heads of {name!r}")
        return self


LABELS = {
    "alpha": "standard deviation of the scores over √(2 ln L)",
    "affine_error": "relative error of the affine read-out",
    "step": "training step of the checkpoint [steps]",
    "risk": "risk on fresh prompts",
    "risk_error": "standard error of the risk on fresh prompts",
    "replaced_risk": "risk with heads replaced",
    "exact_risk": "exact risk of the trained layer",
    "exact_objective": "exact risk of the trained layer over the training lengths",
    "softmax_optimum": "risk of the best one-head softmax attention, exact",
    "linear_optimum": "risk of the best linear attention, exact",
    "carried": "risk of the head that is best over the training lengths, exact",
    "bayes": "Bayes risk",
    "carried_alpha": "score deviation over √(2 ln L) of the head best over the training lengths",
    "objective_optimum": "least mean risk over the training lengths, exact",
    "floor": "risk of the noise alone",
    "layer": "layer, counted from 1",
    "head": "head, counted from 1",
    "checkpoint": "checkpoint",
    "replaced": "what the heads are replaced by",
    "model": "model",
    "kind": "bare attention, or blocks",
    "layers": "number of layers",
    "shuffled": "whether answers were shuffled in training",
}

STUDY = Study(
    name="trained",
    title="Transformers trained here",
    question="Do the heads of trained transformers sit in the linear regime, and where does their "
    "risk follow or beat the exact theory of one layer?",
    method="Small causal transformers, bare attention and real blocks of several depths, are "
    "trained on in-context linear regression. The exact optimum of one layer is computed "
    "beforehand. Heads are audited along training, models are tested on fresh prompts, and heads "
    "are replaced by the affine read-out of the prompt's moments.",
    config=TrainedConfig,
    quick=TrainedConfig(
        models=("blocks 2x2", "attention 1x2", "attention 1x1", "shuffled blocks 1x2"),
        training_lengths=(16, 32),
        test_lengths=(16, 32, 64),
        runs=2,
        attention_steps=400,
        attention_rate=0.02,
        blocks_steps=120,
        checkpoints=3,
        test_prompts=256,
        audit_prompts=32,
    ),
    parts=[
        Part("theory", theory),
        Part("model", trial, over=lambda config: config.models, join=by_model),
    ],
    rules=RULES,
    figures=FIGURES,
    claims=claims("C6", "C7", "Q1", "Q2"),
    variables=labels(LABELS),
)
