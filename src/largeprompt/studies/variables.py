"""What the variables of the studies' datasets are called, and in which units they are."""

import functools
import tomllib
from collections.abc import Mapping
from importlib.resources import files


@functools.cache
def _tables() -> dict[str, dict[str, str]]:
    return tomllib.loads(
        files("largeprompt.studies").joinpath("variables.toml").read_text(encoding="utf-8")
    )


def variables(study: str) -> Mapping[str, str]:
    """Words and units of every variable of a study, for :func:`largeprompt.display.labels.label`;
    its own go before common ones.
    """
    tables = _tables()
    return tables[study] | {
        name: words for name, words in tables["common"].items() if name not in tables[study]
    }


def labels(own: Mapping[str, str]) -> Mapping[str, str]:
    """Words and units of the variables of a study: its own, then the common ones."""
    return {
        **own,
        **{name: words for name, words in _tables()["common"].items() if name not in own},
    }
