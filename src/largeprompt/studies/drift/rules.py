"""The infinite flow ends at the theorem's b, the finite ones at their own optimum; the risks tend
to the Bayes risk, 0.
"""

import numpy as np
import xarray as xr

from largeprompt.runs.judging import Answer, at, judged, listed, log_slope, rule

ARRIVED = 3.0  # flow times in units of L after which the drift is over
REACHED = 1e-3  # relative distance of b to its optimum that counts as there


def arrived(data: xr.Dataset) -> xr.Dataset:
    """The last time of the finite lengths whose drift is over by then."""
    enough = np.isfinite(data.length.values) & (
        data.length.values * ARRIVED <= float(data.time[-1]) * (1 + 1e-9)
    )
    return data.isel(time=-1, length=np.flatnonzero(enough))


@rule(
    "C6",
    "Do the parameters of a long prompt's flow end near those of the infinite prompt's?",
    fails="A stronger reading of the paper, not its theorem, which speaks of the risk: parameters "
    "end at the optimum of their own length, which does not tend to the theorem's.",
)
def parameters(data: xr.Dataset) -> Answer:
    """Fails where a long prompt ends at its own optimum, and that is elsewhere."""
    end, theorem = arrived(data), float(data.predicted_b)
    far = float(end.b[-1] / theorem - 1)
    own = float(abs(end.b / end.optimal_b - 1).max())
    apart = abs(far) > 0.1 and own < REACHED
    return (
        judged(not apart, rests_on=[far]) if own < REACHED else "undecided",
        f"At L = {end.length[-1]:g} and t = {data.time[-1]:g}, b = {end.b[-1]:.3f} against "
        f"tr(Σ⁻²)^¼ = {theorem:.3f}, {far:+.0%}; at every L that has had the time it is within "
        f"{own:.1e} of the optimum of its own "
        "length" + (": the limits in L and t do not commute." if apart else "."),
        f"At L = {end.length[-1]:g} the read-out ends {abs(far):.0%} "
        f"{'above' if far > 0 else 'below'} the theorem's.",
    )


@rule("C5", "Do the risks at the end tend to the infinite prompt's all the same?")
def risks(data: xr.Dataset) -> Answer:
    """Holds where they fall with L, at a power above 0.7."""
    end = arrived(data)
    final = data.risk.isel(time=-1, length=np.flatnonzero(np.isfinite(data.length.values)))
    slope, length = log_slope(final.length, final), float(end.length[-1])
    early = data.sel(time=3.0, length=length, method="nearest")
    return (
        judged(bool((final.diff("length") < 0).all()) and slope < -0.7, rests_on=[slope, final]),
        f"Risk {listed(final, '.2g', 'L = {:g}')}: with exponent {slope:.2f} in L. The drift pays: "
        f"at L = {length:g} it lowers "
        f"the risk from {early.risk:.2g} at t = {early.time:.2g} to {end.risk[-1]:.2g}.",
    )


@rule("C6", "Does the infinite-prompt flow, solved beside the others, end at tr(Σ⁻²)^¼?")
def infinite_prompt(data: xr.Dataset) -> Answer:
    """Holds to one part in a thousand."""
    wrong = float(abs(at(data.b, length=np.inf).isel(time=-1) / float(data.predicted_b) - 1))
    return judged(wrong < 1e-3, rests_on=[wrong]), f"b is there to {wrong:.1e}."


@rule("C6", "Is b² - ‖A‖² conserved at finite length?", control=True)
def conservation(data: xr.Dataset) -> Answer:
    """Fails where it moves by more than 0.1."""
    length = float(arrived(data).length[-1])
    conserved = data.conserved.sel(length=length)
    moved = float(abs(conserved - conserved.isel(time=0)).max())
    return judged(moved <= 0.1, rests_on=[moved]), f"It moves by {moved:.2g} at L = {length:g}."


RULES = (parameters, risks, infinite_prompt, conservation)
