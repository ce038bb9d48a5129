"""Prompt lengths in the settings of several studies: their ranges, grids and windows."""

import math
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from largeprompt.runs.settings import Length, TwoOrMore

Window = tuple[TwoOrMore, Length]  # lengths from and to that a form with ln L is fitted on
Decade = Annotated[int, Field(ge=0, le=15)]  # the length is 10 to this power
Longest = Annotated[float, Field(ge=2, le=1e15)]


def length_grid(longest: float, points: int) -> NDArray[np.int64]:
    """Whole lengths from 1 to the longest, evenly spread in the logarithm, each once."""
    return np.unique(np.round(np.logspace(0, math.log10(longest), points)).astype(np.int64))


def window(fitted: tuple[int, int], lengths: Any) -> NDArray[np.bool_]:
    """Which of the lengths a form is fitted on: at least two, or the settings are refused."""
    inside = (np.asarray(lengths) >= fitted[0]) & (np.asarray(lengths) <= fitted[1])
    if inside.sum() < 2:
        raise ValueError("fitted: from and to, with at least two of the run's lengths between them")
    return inside
