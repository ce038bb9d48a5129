"""What the variables of a dataset are called, and in which units they are."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import xarray as xr


def named(words: str, units: str = "1") -> dict[str, str]:
    """Attributes of a variable: '1' is the unit of a pure number, 'label' that of a name."""
    return {"long_name": words, "units": units}


def label(data: xr.Dataset, names: Mapping[str, str]) -> xr.Dataset:
    """Give every variable and coordinate its ``long_name`` and ``units``, in place; the dataset again.

    Parameters
    ----------
    data
        The dataset.
    names
        What variables are called: the words, and the units in square brackets at their end unless they are those of a pure number.
        A name may stand for several: ``mixture_*_error``, with ``*`` in its words for what the star stood for. A variable that is
        not there keeps the attributes that it has, and is else called by its name.
    """
    for key, variable in data.variables.items():
        name, attributes = str(key), data[key].attrs
        pattern = next((each for each in (name, *names) if each in names and fnmatch.fnmatchcase(name, each)), name)
        before, _, after = pattern.partition("*")
        words, _, units = names.get(pattern, name.replace("_", " ")).partition(" [")
        words = words.replace("*", name[len(before) : len(name) - len(after)].replace("_", " "))
        given = named(words, units.rstrip("]") or ("label" if variable.dtype.kind in "OSUb" else "1"))
        attributes.update(given if pattern in names else given | attributes)
    return data
