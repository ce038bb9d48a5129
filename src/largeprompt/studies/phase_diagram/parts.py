"""The exact effective number of tokens on a grid of score variances and lengths."""

import numpy as np
import torch
import xarray as xr

from largeprompt.law import collision_moments, regime
from largeprompt.runs.settings import Positive, TwoOrMore, settings
from largeprompt.runs.study import Progress
from largeprompt.studies.ranges import Longest, length_grid


@settings
class PhaseDiagramConfig:
    """A grid of score variances and of logarithms of the length."""

    largest_variance: Positive = 40.0
    longest: Longest = 1e12
    variances: TwoOrMore = 121
    lengths: TwoOrMore = 81


def grid(config: PhaseDiagramConfig, progress: Progress) -> xr.Dataset:
    """Exact E Y, hence effective tokens 1/E Y, and the mean squared error along the tilt: the whole
    grid takes seconds.
    """
    variance, lengths = (
        np.linspace(0.0, config.largest_variance, config.variances),
        length_grid(config.longest, config.lengths),
    )
    sigma, tokens, along = torch.from_numpy(np.sqrt(variance)), [], []
    for length in lengths:
        progress(f"L = {length:.3g}")
        moments = collision_moments(int(length), sigma)
        y = moments.collision.numpy()
        tokens.append(1 / y)
        along.append(y + variance * moments.along.numpy())
    axes = ("length", "score_variance")
    names = [[regime(q, int(length)) for q in variance] for length in lengths]
    return xr.Dataset(
        {"effective_tokens": (axes, tokens), "along_mse": (axes, along), "regime": (axes, names)},
        coords={"length": lengths.astype(float), "score_variance": variance},
    )
