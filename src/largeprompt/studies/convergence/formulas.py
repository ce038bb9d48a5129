"""The paper's form of the error, its fit to data, and the comparison of samples with
the exact law.
"""

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from largeprompt.runs.judging import allowed_score

Array = NDArray[np.float64]
LOGS = {"output": 1, "jacobian_u": 2, "jacobian_v": 1}  # powers of ln L in the paper's form
SLOPES = (-1.11, -0.83)  # squared error in L, found by a public audit for L = 16 to 1024
FITS = 1.25  # a form fits where it is never wrong by a larger factor


def paper_form(length: Any, score_variance: float, c1: float, c2: float, logs: int = 1) -> Array:
    """c1 σ⁶ ln(L)^logs / L^{c2/σ²}: logs = 1 for the output (C3), 2 for the derivative
    in U (C4).
    """
    length = np.asarray(length, dtype=np.float64)
    return np.asarray(
        c1 * score_variance**3 * np.log(length) ** logs * length ** (-c2 / score_variance)
    )


def fit_paper_form(
    length: Any, mse: Any, score_variance: float, logs: int = 1
) -> tuple[Array, Array]:
    """Best c1 and c2 of :func:`paper_form`, by least squares in logarithms; mse (length,), or
    (length, n) for n fits at once.
    """
    x = np.log(np.asarray(length, dtype=np.float64))
    target = (np.log(np.asarray(mse, dtype=np.float64)).T - logs * np.log(x)).T
    slope, intercept = np.polyfit(x, target, 1)
    return np.exp(intercept) / score_variance**3, -slope * score_variance


def z_scores(data: xr.Dataset) -> tuple[float, float]:
    """Largest distance of a sample from the exact law in standard errors, and what is allowed at
    the rate of false alarms.
    """
    difference = abs(data.sampled - data.exact_at_samples)
    # at L = 1 a Jacobian does not vary
    known = data.sampled_standard_error > 1e-12 * data.exact_at_samples
    score = (difference / data.sampled_standard_error.where(known)).where(
        known, np.where(difference < 1e-9, 0.0, np.inf)
    )
    return float(score.max()), allowed_score(score.size)
