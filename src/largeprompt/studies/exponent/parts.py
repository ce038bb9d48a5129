"""Exact errors averaged over a random query, and their local slopes between decades of L."""

import math
from collections.abc import Mapping
from typing import Annotated

import numpy as np
import torch
import xarray as xr

from largeprompt.law import collision_moments
from largeprompt.runs.settings import Dimension, Distinct, Increasing, Positive, Two, settings
from largeprompt.runs.study import Progress
from largeprompt.studies.exponent.formulas import sharp_exponent
from largeprompt.studies.ranges import Decade


@settings
class ExponentConfig:
    """Gaussian tokens and queries with H² = ‖Γ^{1/2} U C^{1/2}‖², in one dimension, and isotropic
    in several.
    """

    squares: Increasing[Positive] = (0.15, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
    dims: Distinct[Dimension] = (1, 4)
    decades: Annotated[Increasing[Decade], Two] = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)
    step: Positive = 0.1
    reach: Positive = 9.0


def average_over_queries(length: int, square: float, dim: int, step: float, reach: float) -> float:
    """Mean of E[Y] d + q E[Y - 6 W3 + 6 Y²] over q = H² r², r chi-distributed with d degrees of
    freedom, by a radial sum.
    """
    r = np.arange(step / 2 if dim > 1 else 0.0, reach + math.sqrt(dim), step)
    density = r ** (dim - 1) * np.exp(-(r**2) / 2)
    if dim == 1:
        density[0] /= 2  # the end point of the even integrand
    density /= density.sum()
    sigma = math.sqrt(square) * r
    moments = collision_moments(length, torch.from_numpy(sigma))
    return float(
        (density * (dim * moments.collision.numpy() + sigma**2 * moments.along.numpy())).sum()
    )


def errors(config: ExponentConfig, dim: int, progress: Progress) -> xr.Dataset:
    """Query-averaged errors in one dimension, and their local exponents."""
    mse = np.empty((len(config.squares), len(config.decades)))
    for j, square in enumerate(config.squares):
        progress(f"H² = {square:g}")
        mse[j] = [
            average_over_queries(10**k, square, dim, config.step, config.reach)
            for k in config.decades
        ]
    slopes = np.diff(np.log10(mse), axis=-1) / np.diff(config.decades)
    return xr.Dataset(
        {"mse": (("square", "decade"), mse), "exponent": (("square", "decade_end"), -slopes)},
        coords={
            "square": list(config.squares),
            "decade": list(config.decades),
            "decade_end": list(config.decades[1:]),
        },
    )


def with_predictions(config: ExponentConfig, parts: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """The exponents, with the two that are proposed for them."""
    square = parts["errors"].square
    return parts["errors"].assign(sharp=sharp_exponent(square), bohbot=(1 / (1 + square)))
