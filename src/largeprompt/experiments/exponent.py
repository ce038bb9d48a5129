"""C3 averaged over a random query: at which power of L does the error fall, and does the predicted exponent hold?"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray

from largeprompt.law import weight_moments

Array = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class ExponentConfig:
    """Gaussian tokens and queries with H² = ‖Γ^{1/2} U C^{1/2}‖², in one dimension, and isotropic in several."""

    squares: tuple[float, ...] = (0.15, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
    dims: tuple[int, ...] = (1, 4)
    decades: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)
    step: float = 0.1
    reach: float = 9.0


def sharp_exponent(square: float) -> float:
    """g(H) = 1 if H² < 1/2, else √(1/H² + 1/4) - 1/2: the power of L at which the query-averaged squared error falls."""
    return 1.0 if square < 0.5 else math.sqrt(1 / square + 0.25) - 0.5


def average_over_queries(length: int, square: float, dim: int, step: float, reach: float) -> float:
    """Mean of E[Y] d + q E[Y - 6 W3 + 6 Y²] over q = H² r², r chi-distributed with d degrees of freedom, by a radial sum."""
    r = np.arange(step / 2 if dim > 1 else 0.0, reach + math.sqrt(dim), step)
    density = r ** (dim - 1) * np.exp(-(r**2) / 2)
    if dim == 1:
        density[0] /= 2  # the end point of the even integrand
    density /= density.sum()
    sigma = math.sqrt(square) * r
    y, w3, y2 = weight_moments(length, torch.from_numpy(sigma), [[(2, 0)], [(3, 0)], [(2, 0), (2, 0)]]).numpy()
    return float((density * (dim * y + sigma**2 * (y - 6 * w3 + 6 * y2))).sum())


def run(config: ExponentConfig, progress: Callable[[str], None] = lambda message: None) -> xr.Dataset:
    """Exact query-averaged errors and their local slopes between decades of L, beside the predictions."""
    shape = (len(config.dims), len(config.squares), len(config.decades))
    mse = np.empty(shape)
    for i, dim in enumerate(config.dims):
        for j, square in enumerate(config.squares):
            progress(f"exponent: d = {dim}, H² = {square:g}")
            mse[i, j] = [average_over_queries(10**k, square, dim, config.step, config.reach) for k in config.decades]
    slopes = np.diff(np.log10(mse), axis=-1) / np.diff(config.decades)
    return xr.Dataset(
        {
            "mse": (("dim", "square", "decade"), mse, {"long_name": "query-averaged E|T_L - T|^2, exact"}),
            "exponent": (("dim", "square", "decade_end"), -slopes, {"long_name": "local exponent of the decay in L"}),
            "sharp": ("square", [sharp_exponent(h) for h in config.squares], {"long_name": "g(H), predicted"}),
            "bohbot": ("square", [1 / (1 + h) for h in config.squares], {"long_name": "1/(1 + H^2), arXiv 2512.10656"}),
        },
        coords={
            "dim": list(config.dims),
            "square": list(config.squares),
            "decade": list(config.decades),
            "decade_end": list(config.decades[1:]),
        },
        attrs={"study": "exponent", "config": json.dumps(dataclasses.asdict(config))},
    )
