"""A pretrained language model: what does a longer prompt do to its heads, and would a cache that
does not grow serve them?
"""

from largeprompt.runs.judging import Claim
from largeprompt.runs.study import Part, Study
from largeprompt.studies.languagemodel.figures import FIGURES
from largeprompt.studies.languagemodel.names import NAMES
from largeprompt.studies.languagemodel.parts import (
    LanguageModelConfig,
    by_text,
    combine,
    heads,
    others,
    replacement,
)
from largeprompt.studies.languagemodel.rules import CLAIM, RULES

STUDY = Study(
    "languagemodel",
    "A language model",
    "Does a longer prompt bring the heads of SmolLM2 to the affine read-out of mean and "
    "covariance, as the exact law of a finite prompt foretells; if not, which assumption breaks; "
    "and would a state of constant size serve them?",
    "SmolLM2-135M (30 layers of 9 heads) reads several texts once. At prefixes of 64 to 8192 "
    "tokens every head is audited, with and without the first token; what each shorter prefix "
    "foretells is stored beside what is seen at the longer one. Heads are replaced by read-outs "
    "of moments, and by a state of constant size (first and last tokens exactly, the others by "
    "the moments of a few clusters), and the loss of the next token is measured on texts that did "
    "not choose them.",
    LanguageModelConfig,
    LanguageModelConfig(
        texts=("novel 1", "novel 2", "code"),
        lengths=(64, 128, 256, 512),
        recent=(0, 16, 64, 256),
        components=(0, 1),
        replaced_length=256,
        replaced_recent=(16, 64),
        replaced_shares=(0.25, 0.5),
        steps=2,
    ),
    parts=[
        Part("heads", heads, over=lambda config: config.texts, join=by_text),
        Part("replacement", replacement, over=others, join=by_text),
    ],
    rules=RULES,
    figures=FIGURES,
    claims=[
        Claim(
            CLAIM,
            "A language model",
            "What a longer prompt does to the heads of SmolLM2.",
            "Does a longer prompt make it linear?",
        )
    ],
    combine=combine,
    variables=NAMES,
)
