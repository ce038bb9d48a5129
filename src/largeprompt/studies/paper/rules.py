"""Both attentions come near the Bayes risk as L grows; which is better at each length; SGD follows
the flow.
"""

import math

import numpy as np
import xarray as xr

from largeprompt.runs.judging import Answer, Outcome, Rule, at, judged, listed, rule, span
from largeprompt.studies.paper.config import SETTINGS, TRAINED


def trained_rule(setting: str) -> Rule:
    """The rule for the end of training in one setting."""

    @rule(
        "P1",
        "Does the authors' training bring both attentions to the Bayes risk as L grows? "
        f"({setting} setting)",
    )
    def trained(data: xr.Dataset) -> Answer:
        end = data.sel(setting=setting).isel(time=-1)
        finite, limit = end.sel(length=slice(0, 1e9)), end.isel(length=-1)
        soft, line = (finite.risk.sel(attention=kind) for kind in ("softmax", "linear"))
        over = soft / line
        close = float((limit.risk / limit.bayes_risk).max())
        nearer = (finite.risk / finite.bayes_risk).isel(length=[0, -1])
        falls = bool((nearer.isel(length=1) <= nearer.isel(length=0)).all())
        outcome = judged(close < 1.02 and falls, rests_on=[close, nearer, over])
        return (
            "undecided" if float(data.time[-1]) < TRAINED else outcome,
            f"At t = {data.time[-1]:g} and L = {finite.length[-1]:g}: softmax {soft[-1]:.4f}, "
            "linear "
            f"{line[-1]:.4f}, Bayes {finite.bayes_risk.sel(attention='softmax')[-1]:.4f}; the "
            "infinite "
            f"prompt is within {close - 1:.0e} of Bayes, relatively, with either. Softmax/linear "
            f"from {span(over, '.2f')}: "
            "linear attention is "
            + (
                "better at every length."
                if bool((soft > line).all())
                else "not better at every length."
            ),
            f"After the authors' training at L = {finite.length[-1]:g} the risk is {soft[-1]:.3g} "
            "(softmax), "
            f"{line[-1]:.3g} (linear), {finite.bayes_risk.sel(attention='softmax')[-1]:.3g} "
            "(Bayes)."
            if setting == SETTINGS[0]
            else "",
        )

    return trained


def sgd_gap(data: xr.Dataset, of: float | None = None) -> xr.DataArray:
    """Relative difference between the risk along each SGD run and along the flow of its length (or
    of another), at its times.
    """
    lengths = (
        data.sgd_length.astype(float) if of is None else of + 0 * data.sgd_length.astype(float)
    )
    flow = at(data.risk.sel(setting="intended"), length=lengths).interp(
        time=data.sgd_time, method="cubic"
    )
    gap: xr.DataArray = data.sgd_risk / flow.drop_vars(["length", "time", "setting"]) - 1
    return gap


def follows(data: xr.Dataset, difference: xr.DataArray) -> tuple[Outcome, float, float]:
    """Whether the mean over seeds is within three standard errors and 5 %, both root mean squares;
    with it and its error.
    """
    runs = data.sizes["sgd_seed"]
    noise = (
        float(np.sqrt((sgd_gap(data).std("sgd_seed", ddof=1) ** 2 / runs).mean()))
        if runs > 1
        else math.nan
    )
    bias = float(np.sqrt((difference.mean("sgd_seed") ** 2).mean()))
    return judged(bias < min(3 * noise, 0.05), rests_on=[noise, bias]), bias, noise


@rule("P1", "Does SGD as the authors ran it follow the exact flow within its noise?")
def sgd_follows(data: xr.Dataset) -> Answer | None:
    """Undecided with a single seed, whose noise is not known."""
    if "sgd_risk" not in data:
        return None
    gap = sgd_gap(data)
    outcome, bias, noise = follows(data, gap)
    return (
        outcome,
        f"Up to t = {data.sgd_time[-1]:g}, at L = {listed(data.sgd_length)}, both "
        f"attentions: root mean square difference of the mean over {data.sizes['sgd_seed']} seeds "
        f"from the flow {bias:.2%} of the risk, standard error of that mean {noise:.2%}; largest "
        f"difference of a run {np.abs(gap).max():.1%}.",
    )


def longest(data: xr.Dataset) -> float:
    """The longest prompt but the infinite one."""
    return float(data.length[-2])


@rule(
    "P1",
    lambda data: (
        f"Does SGD at these lengths follow the flow of another length, L = {longest(data):g}?"
    ),
    control=True,
)
def other_length(data: xr.Dataset) -> Answer | None:
    """The flow of the longest prompt instead."""
    if "sgd_risk" not in data:
        return None
    outcome, bias, _ = follows(data, sgd_gap(data, longest(data)))
    return outcome, f"Root mean square difference {bias:.2%} of the risk."


RULES = (*(trained_rule(setting) for setting in SETTINGS), sgd_follows, other_length)
