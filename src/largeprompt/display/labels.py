"""What the variables of a dataset are called, and in which units they are."""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import xarray as xr


def named(words: str, units: str = "1") -> dict[str, str]:
    """Attributes of a variable: '1' is the unit of a pure number, 'label' that of a name."""
    return {"long_name": words, "units": units}


def label(data: xr.Dataset, names: Mapping[str, str]) -> xr.Dataset:
    """Give every variable its ``long_name`` and ``units``, in place; the dataset again.

    ``names`` are words, with [units] at their end unless they are those of a pure number. A name
    may stand for several: ``mixture_*_error``, with ``*`` in its words for what the star stood for.
    A variable without one keeps its attributes, or is called by its name.
    """
    known = tuple(names.items())
    for key, variable in data.variables.items():
        found = _called(str(key), known)
        words, units = found or (str(key).replace("_", " "), "")
        given = named(words, units or ("label" if variable.dtype.kind in "OSUb" else "1"))
        variable.attrs.update(given if found else given | variable.attrs)
    return data


@functools.lru_cache(maxsize=4096)
def _called(name: str, names: tuple[tuple[str, str], ...]) -> tuple[str, str] | None:
    """Words and units of a variable, None where no name stands for it."""
    known = dict(names)
    matching = (each for each in known if fnmatch.fnmatchcase(name, each))
    pattern = name if name in known else next(matching, None)
    if pattern is None:
        return None
    before, _, after = pattern.partition("*")
    words, _, units = known[pattern].partition(" [")
    star = name[len(before) : len(name) - len(after)].replace("_", " ")
    return words.replace("*", star), units.rstrip("]")
