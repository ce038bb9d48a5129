"""One head, a pair of heads, three tasks where the answer turns round, and a control."""

import numpy as np
import xarray as xr

from largeprompt.runs.judging import Finding, judged, rule

LIMIT = 1e-3  # relative: what counts as having reached a predicted limit


def ratio(data: xr.Dataset) -> xr.DataArray:
    """Excess risk of the best softmax head over that of the best linear attention."""
    found: xr.DataArray = data.softmax_best / data.linear_best
    return found


@rule("Q1", "On long prompts, is one head's excess the predicted multiple of linear attention's?")
def limit(data: xr.Dataset) -> Finding:
    """Holds to 1e-3 for all covariances."""
    other = data.spectrum_softmax / data.spectrum_linear
    off = abs(ratio(data).isel(length=-1) / data.limit_ratio - 1)
    worst = abs(other.isel(spectrum_length=-1) / data.spectrum_limit - 1)
    calm = data.limit_ratio.isel(noise=0)
    return Finding(
        judged(max(float(off.max()), float(worst.max())) < LIMIT, rests_on=[off, worst]),
        f"On long prompts one softmax head loses {float(calm.min()):.3g} to "
        f"{float(calm.max()):.3g} times as much as linear attention, as predicted.",
        "On long prompts the ratio of softmax to linear attention is not the predicted one.",
        {"deviation, identity covariance": off.max(), "other covariances": worst.max()},
    )


@rule("Q1", "Is linear attention at least as good as one softmax head on plain regression?")
def one_head(data: xr.Dataset) -> Finding:
    """Holds where no excess of a softmax head is below that of linear attention."""
    other = data.spectrum_softmax / data.spectrum_linear
    every = np.concatenate([ratio(data).values.ravel(), other.values.ravel()])
    return Finding(
        judged(float(every.min()) >= 1, rests_on=[every]),
        f"One softmax head never beats linear attention in {len(every)} plain regressions.",
        "One softmax head sometimes beats linear attention on plain regression.",
        {"excess of softmax over linear attention's": every},
    )


@rule("Q1", "Does a pair of heads with opposite tilts recover linear attention?")
def pair(data: xr.Dataset) -> Finding:
    """Holds to 1e-4 at the longest prompt, where no pair is worse than one with vanishing tilts."""
    two = data.pair_best / data.pair_linear
    end = two.isel(pair_length=-1)
    worse = float((data.pair_best / data.pair_vanishing).max())
    return Finding(
        judged(float(abs(end - 1).max()) < 1e-4 and worse < 1 + 1e-4, rests_on=[two]),
        "Two softmax heads with opposite tilts recover linear attention.",
        "Two softmax heads do not recover linear attention.",
        {"excess over linear attention's": two},
    )


@rule("Q1", "One informative token among L: does softmax win, reading half of it near ν = 2 ln L?")
def location(data: xr.Dataset) -> Finding:
    """Holds where softmax reads more, and half near 2 ln L (to 10 %); in part: only the first."""
    share, linear = data.location_softmax, data.location_linear
    least = np.maximum(linear, data.location_annealed)
    wins = bool((share >= least - 1e-12).all())  # rounding of a share of one
    end = float((data.location_half / data.location_threshold)[-1])
    best = (share / linear.where(linear > 0)).max()
    return Finding(
        judged(wins and abs(end - 1) < 0.1, in_part=wins, rests_on=[share, linear, end]),
        f"Reading one informative token, softmax wins up to {float(best):.2g}-fold.",
        "Softmax does not find one informative token from the predicted strength on.",
        {
            f"spike at which half is read, over 2 ln L, L = {data.location_length[-1]:.0e}": end,
            "largest share read over linear attention's": best,
        },
    )


@rule("Q1", "Regression with marked outliers: does softmax win beyond the predicted variance?")
def outliers(data: xr.Dataset) -> Finding:
    """Holds where the crossing is within 10 % of the predicted one at the longest prompt."""
    off = abs(data.outlier_crossing / data.outlier_predicted - 1)
    end = off.isel(outlier_length=-1)
    return Finding(
        judged(float(end.max()) < 0.1, rests_on=[off]),
        "Softmax beats linear attention on marked outliers from the predicted variance on.",
        "Softmax does not beat linear attention on marked outliers where predicted.",
        {
            "predicted variance, over shares": data.outlier_predicted,
            "deviation at the longest prompt": end.max(),
        },
    )


@rule("Q1", "Prompts with a mean of their own: does a pair of heads win from the predicted length?")
def shifts(data: xr.Dataset) -> Finding:
    """Holds where the pair wins at every length beyond the predicted one."""
    beyond = data.shift_length >= data.shift_crossing
    wins = (data.shift_pair <= data.shift_linear * (1 + 1e-9)).where(beyond, True)
    return Finding(
        judged(bool(wins.all()), rests_on=[data.shift_pair, data.shift_linear]),
        "On prompts with a mean of their own a pair of heads wins from the predicted length.",
        "On prompts with a mean of their own a pair of heads does not always win.",
        {
            "predicted length": data.shift_crossing,
            "signal that linear attention loses forever": (100 * data.shift_floor, "%"),
        },
    )


@rule("Q1", "Does softmax win on outliers that carry no mark?", control=True)
def blind(data: xr.Dataset) -> Finding:
    """Fails where softmax is worse at every share and length."""
    return Finding(
        judged(float(data.outlier_unmarked.min()) < 1, rests_on=[data.outlier_unmarked]),
        numbers={"risk of softmax over linear attention's": data.outlier_unmarked},
    )


RULES = (one_head, limit, pair, location, outliers, shifts, blind)
