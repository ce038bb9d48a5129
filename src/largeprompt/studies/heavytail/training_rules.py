"""What training on heavy-tailed prompts says: SGD against exact descent, the risk that it reaches,
and whether it learns.
"""

import math

import numpy as np
import xarray as xr

from largeprompt.runs.judging import Answer, at, judged, rule
from largeprompt.studies.heavytail.formulas import FACTOR, crossing, jackknife_error


@rule(
    "N3",
    "Training with df = inf: does SGD end where exact descent on Gaussian prompts does, risk "
    "within 5 %?",
)
def descent(data: xr.Dataset) -> Answer:
    """Mean over runs: the noise of SGD may add a little."""
    one = at(data, training_df=math.inf)
    mean, error = (
        float(one.run_risk.mean()),
        float(one.run_risk.std(ddof=1)) / math.sqrt(one.sizes["run"]),
    )
    exact = float(one.descent.sel(found="risk"))
    return (
        judged(abs(mean / exact - 1) < 0.05, rests_on=[mean, error, exact]),
        f"Risk {mean:.5f} ± {2 * error:.5f} over {one.sizes['run']} runs, {exact:.5f} by descent.",
    )


@rule(
    "N3",
    "Outside the hypothesis of C5: does training on drawn prompts reach the Gaussian risk with "
    "heavy-tailed inputs (df > 2)?",
    fails="An extension of the paper beyond its hypothesis: with heavy tails even the best "
    "parameters have a larger risk.",
)
def training(data: xr.Dataset) -> Answer:
    """Fails where the median risk over runs is twice the Gaussian one."""
    finite = data.sel(training_df=data.training_df > 2)
    risk = finite.run_risk.median("run")
    worst = float((risk / at(risk, training_df=math.inf)).max())
    low, high = (finite.run_risk.quantile(level, "run") for level in (0.1, 0.9))
    descent, least = (finite[name].sel(found="risk") for name in ("descent", "optimum"))
    columns = (risk, low, high, descent, least)
    rows = "; ".join(
        f"df = {df:g}: {m:.3f} [{a:.3f}, {b:.3f}], descent {d:.3f}, least {o:.3f}"
        for df, m, a, b, d, o in zip(
            finite.training_df, *(column.values for column in columns), strict=True
        )
    )
    broken, error, exact = training_breakdown(finite)
    where = (
        f"The risk of SGD is {FACTOR:g} times the Gaussian one at df = {broken:.3g} ± "
        f"{2 * error:.2g} (descent: {exact:.3g}). "
    )
    where = where if math.isfinite(error) else ""  # too few values of df to interpolate
    return (
        judged(not worst > FACTOR, rests_on=[worst, *columns]),
        f"{where}Population risk at the end, median and 10 to 90 % of runs: {rows}.",
    )


def training_breakdown(finite: xr.Dataset) -> tuple[float, float, float]:
    """df at which the median risk of the runs is twice the Gaussian one, its jackknife error, and
    the same of exact descent.
    """
    order = finite.isel(training_df=np.flatnonzero(np.isfinite(finite.training_df))).sortby(
        "training_df"
    )
    df, one = order.training_df.values, finite.sel(training_df=math.inf)
    risks, base = order.run_risk.transpose("training_df", "run").values, one.run_risk.values
    # a median's jackknife needs more than one run left out
    groups = np.array_split(np.arange(len(base)), 8)
    rest = [np.delete(np.arange(len(base)), group) for group in groups]
    without = np.array(
        [crossing(df, np.median(risks[:, kept], -1) / np.median(base[kept])) for kept in rest]
    )
    exact = order.descent.sel(found="risk") / one.descent.sel(found="risk")
    return (
        crossing(df, np.median(risks, -1) / np.median(base)),
        jackknife_error(without),
        crossing(df, exact.values),
    )


@rule(
    "N3",
    "Does SGD learn at every df, by the median squared error on independent prompts (1: no better "
    "than saying 0)?",
)
def learning(data: xr.Dataset) -> Answer:
    """In part where it does at some."""
    lost, middle = data.diverged.astype(float).mean("run"), data.run_median.median("run")
    rows = "; ".join(
        f"df = {df:g}: {100 * float(share):.0f} % diverged, {error:.2g}"
        for df, share, error in zip(data.training_df, lost, middle, strict=True)
    )
    useless = int((middle >= 1).sum())
    return (
        judged(not useless, in_part=useless < data.sizes["training_df"], rests_on=[middle]),
        f"Runs diverged, and median over runs of that error: {rows}.",
    )


RULES = (descent, training, learning)
