"""The three regimes over score variance and prompt length, with the effective number of tokens."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable

import numpy as np
import torch
import xarray as xr

from largeprompt.law import weight_moments


@dataclasses.dataclass(frozen=True)
class PhaseDiagramConfig:
    """A grid of score variances and of logarithms of the length."""

    largest_variance: float = 40.0
    longest: float = 1e12
    variances: int = 121
    lengths: int = 81


def run(config: PhaseDiagramConfig, progress: Callable[[str], None] = lambda message: None) -> xr.Dataset:
    """Exact E Y, hence effective tokens 1/E Y, and the mean squared error along the tilt, on the grid."""
    variance = np.linspace(0.0, config.largest_variance, config.variances)
    sigma = torch.from_numpy(np.sqrt(variance))
    lengths = np.unique(np.round(np.logspace(0, math.log10(config.longest), config.lengths)).astype(np.int64))
    collision = np.empty((len(lengths), len(variance)))
    along = np.empty_like(collision)
    for i, length in enumerate(lengths):
        progress(f"phase_diagram: L = {length:.3g}")
        y, w3, y2 = weight_moments(int(length), sigma, [[(2, 0)], [(3, 0)], [(2, 0), (2, 0)]]).numpy()
        collision[i], along[i] = y, y + variance * (y - 6 * w3 + 6 * y2)
    grid = ("length", "score_variance")
    return xr.Dataset(
        {
            "effective_tokens": (grid, 1 / collision, {"long_name": "effective tokens, 1/E[Y]"}),
            "along_mse": (grid, along, {"long_name": "E(S - sigma)^2"}),
        },
        coords={"length": lengths.astype(float), "score_variance": variance},
        attrs={"study": "phase_diagram", "config": json.dumps(dataclasses.asdict(config))},
    )
