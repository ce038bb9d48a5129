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
    """Give every variable and coordinate its ``long_name`` and ``units``, in place; the dataset
    again.

    Parameters
    ----------
    data
        The dataset.
    names
        What variables are called: the words, and the units in square brackets at their end unless
        they are those of a pure number. A name may stand for several: ``mixture_*_error``, with
        ``*`` in its words for what the star stood for. A variable that is not there keeps the
        attributes that it has, and is else called by its name.
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
    pattern = (
        name
        if name in known
        else next((each for each in known if fnmatch.fnmatchcase(name, each)), None)
    )
    if pattern is None:
        return None
    before, _, after = pattern.partition("*")
    words, _, units = known[pattern].partition(" [")
    return words.replace(
        "*", name[len(before) : len(name) - len(after)].replace("_", " ")
    ), units.rstrip("]")
