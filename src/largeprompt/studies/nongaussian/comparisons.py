"""How samples are compared with predictions in this study: how many of them, and what chance
allows.
"""

import json
from typing import Any

import numpy as np
import xarray as xr

from largeprompt.runs.judging import allowed_score


def counted(data: xr.Dataset) -> int:
    """How many sampled numbers are compared with predicted ones."""
    static = 4 * int(data.drawn_mse.notnull().sum())
    independent = int(data.dependent_drawn.sel(dependence=known_exactly(data)).notnull().sum())
    return static + independent


def known_exactly(data: xr.Dataset) -> list[str]:
    """Cases of dependence whose law is known exactly: independent tokens, and tokens that are only
    repeated.
    """
    return [
        str(name)
        for name in data.dependence.values
        if str(name).startswith("repeated") or name == "AR(1) 0"
    ]


def setting(data: xr.Dataset, name: str) -> Any:
    """A setting of the run."""
    return json.loads(data.attrs["config"])[name]


def least_chance(
    mean: xr.DataArray, expected: xr.DataArray, variance: xr.DataArray, count: int
) -> float:
    """Smallest two-sided probability of means of ``count`` squared distances, each mean a gamma
    variable.

    With the exact expectation and variance it is right for squared normal variables, and it allows
    for rare prompts that decide.
    """
    from scipy.stats import gamma

    shape = count * expected**2 / variance.where(variance > 1e-12 * expected**2, np.nan)
    ratio = mean / expected * shape
    # members that a family lacks are NaN
    return float(2 * np.nanmin(np.fmin(gamma.cdf(ratio, shape), gamma.sf(ratio, shape))))


def largest_score(difference: xr.DataArray, error: xr.DataArray) -> float:
    """Largest distance in standard errors."""
    return float((abs(difference) / error).max())


def largest_allowed(data: xr.Dataset) -> float:
    """Largest distance in standard errors that chance allows over all comparisons of the study."""
    return allowed_score(counted(data))
