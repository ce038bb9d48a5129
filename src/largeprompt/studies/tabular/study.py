"""A pretrained in-context learner of tables: does the theory of long prompts describe its heads?"""

from largeprompt.runs.judging import Claim
from largeprompt.runs.study import Part, Study, along
from largeprompt.studies.tabular.figures import FIGURES
from largeprompt.studies.tabular.names import NAMES
from largeprompt.studies.tabular.parts import (
    TabularConfig,
    audit,
    by_kind_and_length,
    cells,
    combine,
    known,
    replacement,
    theory,
)
from largeprompt.studies.tabular.rules import CLAIM, RULES
from largeprompt.studies.tabular.tables import REAL

STUDY = Study(
    "tabular",
    "An in-context learner of tables",
    "Is TabPFN, whose prompt is a set of rows and so a measure, in the linear regime anywhere, "
    "and does the error of its heads follow the exact law of a finite prompt?",
    "The released weights of TabPFN 0.1 (12 layers of 4 heads, no positions) with a forward pass "
    "of our own. On generated tables of two Gaussian classes and of linear regression cut into "
    "ten classes, and on three real sets, every head is audited where unlabelled rows read the "
    "labelled ones; heads are replaced by their affine read-outs; risks stand beside exact optima.",
    TabularConfig,
    TabularConfig(
        kinds=("two classes", "regression", "iris"),
        lengths=(32, 64, 128, 256),
        tables=4,
        queries=64,
        audited=16,
        replaced_length=64,
        steps=4,
        folds=5,
    ),
    parts=[
        Part("theory", theory),
        Part("audit", audit, over=cells, join=by_kind_and_length),
        Part("replacement", replacement, over=lambda config: config.kinds, join=along("kind")),
        Part(
            "known",
            known,
            over=lambda config: [kind for kind in config.kinds if kind in REAL],
            join=along("kind"),
        ),
    ],
    rules=RULES,
    figures=FIGURES,
    claims=[
        Claim(
            CLAIM,
            "An in-context learner of tables",
            "Which heads of TabPFN read only the moments of their context.",
            "Is TabPFN linear?",
        )
    ],
    combine=combine,
    variables=NAMES,
)
