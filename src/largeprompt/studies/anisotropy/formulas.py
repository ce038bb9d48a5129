"""Spectra of a given trace, by name."""

import math
import re

import numpy as np
from numpy.typing import NDArray

from largeprompt.errors import InvalidArgumentError

Array = NDArray[np.float64]
DIRECTIONS = ("weak", "strong", "mixed")  # of the query, among the eigenvectors
TOLERANCE = 0.1  # relative root mean squared error of the needed length


def spectrum(kind: str, number: float, dim: int) -> Array:
    """Eigenvalues of sum d, largest first.

    'condition' number c: logarithms evenly spread from 1 to 1/c; 'power law' i^-p; 'spike': a share
    s of the trace in the first.
    """
    if kind == "condition":
        values = np.logspace(0, -math.log10(number), dim, dtype=np.float64)
    elif kind == "power law":
        values = np.arange(1, dim + 1, dtype=np.float64) ** -number
    else:
        values = np.append(number, np.full(dim - 1, (1 - number) / (dim - 1)))
    return np.asarray(values * dim / values.sum())


def parsed(name: str) -> tuple[str, float]:
    """Kind and number of a spectrum: 'condition 1e4', 'power law 2' or 'spike 0.5'."""
    found = re.fullmatch(r"(condition|power law|spike) (\d*\.?\d+(?:[eE][-+]?\d+)?)", name)
    kind, number = (found[1], float(found[2])) if found else ("", 0.0)
    if not {"condition": number >= 1, "power law": True, "spike": 0 < number < 1}.get(kind, False):
        raise InvalidArgumentError(
            "spectra",
            repr(name),
            "'condition c' (c >= 1), 'power law p' or 'spike s' (s between 0 and 1)",
        )
    return kind, number


def eigenvalues(name: str, dim: int) -> Array:
    """The spectrum of that name."""
    return spectrum(*parsed(name), dim)
