"""A study of one's own: how biased a coin may be before attention over its tosses leaves the affine
read-out.
"""

from typing import Annotated

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from pydantic import Field

import largeprompt as lp
from largeprompt.runs.judging import Claim, at, judged, log_slope, rule
from largeprompt.runs.settings import Some, TwoOrMore, settings
from largeprompt.runs.study import Part, Study, StudyFigure, along


@settings
class CoinConfig:
    """Tosses ±1, P(+1) = 1/2 + bias, read with tilts from 0.01 to 1."""

    biases: Some[Annotated[float, Field(gt=-0.5, lt=0.5)]] = (0.0, 0.1, 0.2, 0.4)
    tilts: TwoOrMore = 25


def gap(config, bias, progress):
    """Distance of the infinite-prompt limit to the affine read-out with the same
    mean and variance.
    """
    coin = lp.Discrete([[1.0], [-1.0]], [0.5 + bias, 0.5 - bias])
    layer = lp.SoftmaxAttention([[1.0]], [[1.0]])
    matrix, offset = lp.affine_limit(layer, coin)
    tilts = np.geomspace(0.01, 1.0, config.tilts)[:, None]  # one query a row
    limit, affine = layer(coin, tilts).numpy(), tilts @ matrix.numpy().T + offset.numpy()
    return xr.Dataset({"gap": ("tilt", abs(limit - affine)[:, 0])}, {"tilt": tilts[:, 0]})


@rule(
    "fair",
    "Does the gap of a fair coin grow like the cube of the tilt, as its fourth cumulant says?",
)
def cubic(data):
    """Holds to 0.05 in the slope."""
    fair = at(data.gap, toss=0.0).where(data.tilt < 0.1, drop=True)
    slope = log_slope(fair.tilt, fair)
    outcome = judged(abs(slope - 3) < 0.05, rests_on=[slope])
    return (
        outcome,
        f"Slope {slope:.3f} below a tilt of 0.1.",
        f"The gap of a fair coin grows with the power {slope:.2f} of the tilt.",
    )


def gap_figure(data):
    """One curve for each coin."""
    figure = Figure(figsize=(4, 3), layout="constrained")
    axes = figure.subplots()
    for bias, one in data.gap.groupby("toss"):
        axes.loglog(data.tilt, one.squeeze(), label=f"P(+1) = {0.5 + bias:g}")
    axes.set(xlabel="tilt", ylabel="distance to the affine read-out")
    axes.legend()
    return figure


STUDY = Study(
    "coin",
    "Tosses of a coin",
    "How far is attention over tosses of a coin from its affine read-out?",
    "The limit and the affine read-out are computed exactly for several coins and tilts.",
    CoinConfig,
    CoinConfig(biases=(0.0,), tilts=9),
    parts=[Part("gap", gap, over=lambda config: config.biases, join=along("toss"))],
    rules=[cubic],
    figures=[
        StudyFigure(
            "gap",
            gap_figure,
            "Distance of the limit to the affine read-out, by the bias of the coin.",
        )
    ],
    claims=[
        Claim(
            "fair",
            "Fair coins",
            "Symmetric tokens leave the affine read-out at third order in the tilt.",
        )
    ],
)
