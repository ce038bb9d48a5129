"""The list of studies: our own in the order of the report, then those of installed packages."""

from __future__ import annotations

import difflib
import importlib.metadata
import importlib.resources
import importlib.util
from typing import TYPE_CHECKING

from largeprompt.errors import InvalidArgumentError

if TYPE_CHECKING:
    from largeprompt.runs.study import Study

# entry points of packages that bring studies: name = "package.module:STUDY"
GROUP = "largeprompt.studies"
# of computing on one core, with --quick and in full, as last measured; what a newcomer wants to see
# comes first
SECONDS = {
    "limit": (6, 14),
    "convergence": (7, 15),
    "training": (12, 48),
    "paper": (19, 120),
    "softmax_vs_linear": (2, 17),
    "heavytail": (12, 45),
    "depth": (4, 37),
    "dependent": (8, 40),
    "discrete": (12, 52),
    "trained": (7, 99),
    "random_query": (3, 8),
}
OURS = tuple(SECONDS)
# ours too, but they need weights that `make real` fetches
WITH_WEIGHTS = {"real_models": (240, 5400)}
# packages of the extra `real` without which none of its cells can be computed
NEEDED = {"real_models": ("safetensors", "sklearn", "transformers")}


def sources() -> dict[str, str]:
    """Where each study stands, by name; one of ours is not replaced by another of its name."""
    here = importlib.resources.files("largeprompt.studies")
    ours = {
        # a study is one file, or a folder with a file `study`
        name: f"largeprompt.studies.{name}{'.study' if (here / name).is_dir() else ''}:STUDY"
        for name in (*OURS, *WITH_WEIGHTS)
    }
    return {each.name: each.value for each in importlib.metadata.entry_points(group=GROUP)} | ours


def names() -> tuple[str, ...]:
    """Names of all studies: ours first, in the order of the report."""
    ours = (*OURS, *WITH_WEIGHTS)
    return (*ours, *(name for name in sources() if name not in ours))


def check_needed(name: str) -> None:
    """Refuse a study whose packages are missing, before any of its cells is begun."""
    missing = [each for each in NEEDED.get(name, ()) if importlib.util.find_spec(each) is None]
    if missing:
        raise InvalidArgumentError(
            "STUDY",
            f"{name}, and {' and '.join(missing)} is not installed",
            "a study whose packages are there",
            "pip install '.[real]' in a checkout.",
        )


def place(name: str) -> int:
    """Where a study stands in the order of the report; those that are not known come last."""
    order = names()
    return order.index(name) if name in order else len(order)


def study(name: str) -> Study:
    """The study of that name, or at that place: ``my.py:STUDY`` or ``package.module:STUDY``."""
    from largeprompt.runs.find import find_study

    known = sources()
    if name in known:
        return find_study(known[name], listed=True)
    if ":" in name or name.endswith(".py") or "." in name:
        return find_study(name)
    near = [
        each for each in names() if name and each.startswith(name)
    ] or difflib.get_close_matches(name, names(), 1)
    remedy = f"Did you mean {near[0]!r}?" if near else ""
    if answering := answers(name):
        commands = " and ".join(f"`largeprompt run {each}`" for each in answering)
        remedy = f"{name.upper()} is a claim or a question. What answers it: {commands}."
    allowed = f"one of {', '.join(names())}, or a place such as my.py:STUDY"
    raise InvalidArgumentError("study", repr(name), allowed, remedy)


def answers(claim: str) -> list[str]:
    """Names of the studies that answer a claim, such as E3; none where there is no such claim."""
    from largeprompt.studies.claims import CLAIMS

    if claim.upper() not in {each.id for each in CLAIMS}:
        return []
    return [
        name
        for name in (*OURS, *WITH_WEIGHTS)
        if claim.upper() in {each.id for each in study(name).claims}
    ]
