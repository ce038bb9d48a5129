"""Small transformers trained here on in-context regression, and audited along training: is the
theory of one layer what they do?
"""

from largeprompt.runs.study import Part, Study
from largeprompt.studies.claims import claims
from largeprompt.studies.trained.config import TrainedConfig
from largeprompt.studies.trained.figures import FIGURES
from largeprompt.studies.trained.parts import by_model, theory, trial
from largeprompt.studies.trained.rules import RULES
from largeprompt.studies.variables import variables

STUDY = Study(
    "trained",
    "Transformers trained here",
    "Do the heads of trained transformers sit in the linear regime, and where does their risk "
    "follow or beat the exact theory of one layer?",
    "Small causal transformers, bare attention and real blocks of several depths, are trained on "
    "in-context linear regression. The exact optimum of one layer at every length is computed "
    "beforehand. Their heads are audited along training, the models are tested on fresh prompts "
    "at every length, and heads are replaced by the affine read-out of the prompt's moments.",
    TrainedConfig,
    TrainedConfig(
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
    claims=claims("C2", "C5", "C6", "C7", "Q1", "Q2"),
    variables=variables("trained"),
)
