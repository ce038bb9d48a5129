"""Real models: what the theory of long prompts says of SmolLM2 and TabPFN, and what it buys."""

from collections.abc import Callable, Iterable
from typing import Any

from largeprompt.audit.kinds import NAMES as OF_AUDITS
from largeprompt.runs.judging import Claim
from largeprompt.runs.study import Part, Study, along
from largeprompt.studies.real_models import language, tables
from largeprompt.studies.real_models.config import RealModelsConfig
from largeprompt.studies.real_models.figures import FIGURES
from largeprompt.studies.real_models.rules import RULES
from largeprompt.studies.real_models.temperature import temperature

OURS = {
    "text": "text that is read",
    "length": "tokens of the prefix [tokens]",
    "made_at": "tokens of the shorter prefix that foretells [tokens]",
    "layer": "layer of the language model",
    "head": "head of the layer",
    "state": "what a state of constant size knows of the other tokens",
    "recent": "last tokens that the state reads exactly [tokens]",
    "replaced_share": "share of the heads that are replaced",
    "law_foretold": "affine error that a shorter prefix foretells by the law",
    "state_size": "size of the state [tokens of cache]",
    "state_change": "change of the loss with heads read from a state [nats]",
    "loss": "loss of the next token, second half of the text [nats]",
    "shuffled_loss": "loss of the next token, tokens in random order [nats]",
    "within_change": "change of the loss with the heads within the tolerance replaced [nats]",
    "within_count": "number of heads within the tolerance",
    "long_text": "text that is longer than the model was trained on",
    "longer": "length of this text, in trained lengths",
    "scaling": "factor on the scores",
    "long_loss": "loss of the next token, last eighth of the text [nats]",
    "scaling_factor": "mean over heads of the factor on the scores",
    "trained_length": "length that the model was trained on [tokens]",
    "kind": "kind of table",
    "rows": "labeled rows of the table [rows]",
    "table_layer": "layer of TabPFN",
    "table_head": "head of the layer of TabPFN",
    "table_found": "mean squared error of the affine read-out",
    "table_law": "mean squared error of the affine read-out, by the exact law",
    "table_affine_error": "relative error of the affine read-out, median",
    "set": "real set of tables",
    "fold_accuracy": "share of right answers in the cross-validation",
    "known_accuracy": "share of right answers that is known of the model",
    "known_error": "standard error of the known share",
}


def part(
    name: str, compute: Callable[..., Any], over: Callable[[Any], Iterable[Any]], *dims: str
) -> Part:
    """A part that the settings may leave out."""

    def items(config: Any) -> Iterable[Any]:
        return over(config) if name in config.parts else ()

    return Part(name, compute, over=items, join=along(*dims))


STUDY = Study(
    name="real_models",
    title="Real models",
    question="Which heads of SmolLM2 and TabPFN does the theory describe, does a longer prompt "
    "help, does replacing heads pay, and which factor on the scores serves longer texts?",
    method="SmolLM2-135M reads several texts once; what the exact law foretells of every head at "
    "short prefixes is compared with what is seen at longer ones. Heads are replaced by their "
    "moments, and by a state of constant size, and the loss is measured on texts that did not "
    "choose them. Texts beyond the trained length are read with interpolated positions and scores "
    "multiplied by the factors of several rules. TabPFN reads generated tables, and the errors of "
    "its heads are compared with the exact law layer by layer.",
    config=RealModelsConfig,
    quick=RealModelsConfig(
        parts=("heads", "replacement", "tables", "accuracy"),
        texts=("novel 1", "novel 2", "code"),
        lengths=(64, 128, 256, 512),
        replaced_length=512,
        replaced_shares=(0.25, 0.5),
        rows=(32, 64, 128, 256),
        tables=4,
        answered=16,
        sets=("iris",),
        folds=5,
    ),
    parts=[
        part("heads", language.heads, lambda config: config.texts, "text"),
        # the first text says in which order
        part("replacement", language.replacement, lambda config: config.texts[1:], "text"),
        part("temperature", temperature, lambda config: config.long_texts, "long_text"),
        part("tables", tables.heads, tables.cells, "kind", "rows"),
        part("accuracy", tables.accuracy, lambda config: config.sets, "set"),
    ],
    rules=RULES,
    figures=FIGURES,
    claims=(
        Claim(
            "language",
            "A language model",
            "Which heads of SmolLM2 read only moments, and what a longer prompt does to them.",
            "Does a longer prompt make it linear?",
        ),
        Claim(
            "temperature",
            "Scores beyond the trained length",
            "Which factor on the scores gives the least loss on longer texts.",
            "Is the exact factor the best one?",
        ),
        Claim(
            "tables",
            "A learner of tables",
            "Whether the exact law describes the heads of TabPFN.",
            "Does the exact law describe it?",
        ),
    ),
    combine=language.one_size,
    variables=OURS | {name: words for name, words in OF_AUDITS.items() if name not in OURS},
)
