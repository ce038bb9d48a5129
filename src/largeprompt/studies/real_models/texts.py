"""What the language model reads: stretches of a novel, a manual, source code, or own files."""

import argparse
import pydoc_data.topics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from largeprompt.audit.adapters.transformers import transformers_module
from largeprompt.audit.real.models import fetched
from largeprompt.errors import InvalidArgumentError
from largeprompt.runs.study import Progress, quiet

NOVEL, STRETCHES = "novel", 4
NAMES = (*(f"{NOVEL} {number}" for number in range(1, STRETCHES + 1)), "manual", "code")


def tokens(name: str, folder: Path, length: int, progress: Progress = quiet) -> list[int]:
    """The first tokens of a text, as the model's own tokenizer makes them.

    ``name`` is 'novel 1' to 'novel 4', stretches far apart of one novel; 'manual', the topics of
    Python's own help; 'code', a module of its library (both of the Python that runs this); or a
    file. ``folder`` is that of the model.
    """
    make = transformers_module().AutoTokenizer.from_pretrained(folder, local_files_only=True)
    stretch = name in NAMES and name.startswith(NOVEL)
    found: Sequence[int] = make(_text(name, progress), verbose=False)["input_ids"]
    start = len(found) * (2 * int(name.split()[1]) - 1) // (2 * STRETCHES) if stretch else 0
    if start + length > len(found):
        raise InvalidArgumentError(
            "lengths", str(length), f"at most the {len(found) - start} tokens of {name!r}"
        )
    return list(found[start : start + length])


def _text(name: str, progress: Progress) -> str:
    if name == "manual":
        topics: dict[str, Any] = pydoc_data.topics.topics
        return "\n".join(topics[each] for each in sorted(topics))
    if name not in NAMES and not Path(name).is_file():
        raise InvalidArgumentError("texts", repr(name), f"{', '.join(NAMES)}, or a file")
    if name == "code":
        return Path(argparse.__file__).read_text(encoding="utf-8")
    file = fetched("botchan.txt", progress) if name in NAMES else Path(name)
    return file.read_text(encoding="utf-8")
