"""Which heads of a transformer read only the moments of their prompt?"""

from largeprompt.audit.answer import files
from largeprompt.audit.figures import FIGURES
from largeprompt.audit.kinds import RUN_NAMES
from largeprompt.audit.parts import AuditConfig, combine, heads, only, replacement
from largeprompt.audit.rules import CLAIM, RULES
from largeprompt.runs.judging import Claim
from largeprompt.runs.study import Part, Study

STUDY = Study(
    "audit",
    "Which heads read only the moments of the prompt",
    "For each head of this transformer: is softmax attention an affine read-out of mean and "
    "covariance, are the keys not Gaussian, or does the head select tokens?",
    "One function registered with the attention interface of transformers sees queries, keys and "
    "values; the outputs recomputed from them equal the model's own. Scores give moments, regime "
    "and errors of the read-outs. Then heads are replaced by their read-outs, in the "
    "audit's order and others.",
    AuditConfig,
    AuditConfig(positions=16, components=(1, 8), counts=3),
    parts=[
        Part("heads", heads, join=only),
        Part(
            "replacement", replacement, over=lambda config: [()] if config.counts else [], join=only
        ),
    ],
    rules=RULES,
    figures=FIGURES,
    claims=[
        Claim(
            CLAIM,
            "Audit of a transformer",
            "Which heads of a trained model read only the moments of their prompt.",
            "Do its heads read only moments?",
        )
    ],
    combine=combine,
    attach=files,
    variables=RUN_NAMES,
)
