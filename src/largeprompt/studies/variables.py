"""What the variables of the studies' datasets are called, and in which units they are."""

import functools
import tomllib
from collections.abc import Mapping
from importlib.resources import files


@functools.cache
def _common() -> dict[str, str]:
    found = files("largeprompt.studies").joinpath("variables.toml").read_text(encoding="utf-8")
    return dict(tomllib.loads(found))


def labels(own: Mapping[str, str]) -> Mapping[str, str]:
    """Words and units of the variables of a study: its own, then the common ones."""
    return {**own, **{name: words for name, words in _common().items() if name not in own}}
