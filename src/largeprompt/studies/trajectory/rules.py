"""sup ‖δ‖ falls with L like a power, inside its envelope; L(eps) is there for every eps asked;
softmax beside linear attention.
"""

import numpy as np
import xarray as xr

from largeprompt.runs.judging import Answer, Rule, judged, listed, log_slope, rule, span
from largeprompt.studies.lengths import sharp_exponent


def exponents(data: xr.Dataset, name: str, decades: float = 2.0) -> xr.DataArray:
    """Minus the log-log slope of an excess risk over the last decades, for each dimension."""
    far = data.where(data.excess_length >= float(data.excess_length.max()) / 10**decades, drop=True)
    return xr.DataArray(
        [-log_slope(far.excess_length, far[name].sel(dim=d)) for d in data.dim],
        coords={"dim": data.dim},
    )


def tube_rule(claim: str, kind: str) -> Rule:
    """The rule for the flow of one attention."""

    @rule(
        claim,
        f"Does the flow of {kind} attention stay in a tube around the infinite-prompt flow that "
        "closes as L grows?",
    )
    def tube(data: xr.Dataset) -> Answer:
        distance, envelope = data[f"{kind}_distance"], data[f"{kind}_envelope"]
        sup = distance.max("time")
        inside = bool((distance <= envelope * (1 + 1e-9) + 1e-9).all())
        slope = -log_slope(sup.length[-3:], sup[-3:])
        falls = bool((sup.diff("length") < 0).all()) and slope > 0.2
        ratio = float((envelope.isel(time=-1) / distance.isel(time=-1)).isel(length=-1))
        return (
            judged(inside and falls, rests_on=[sup, slope, ratio]),
            f"sup ‖θ_L - θ_∞‖ falls from {sup[0]:.2g} (L = {sup.length[0]:g}) to {sup[-1]:.2g} (L "
            f"= {sup.length[-1]:.0e}), with exponent {-slope:.2f} at the end; the Grönwall "
            f"envelope is {'never crossed' if inside else 'crossed'} and {ratio:.1f} times as "
            "large at the last time.",
            f"At L = {sup.length[-1]:.0e} training stays within {sup[-1]:.2e} of the "
            f"infinite-prompt parameters; at L = {sup.length[0]:g} within {sup[0]:.3g}."
            if claim == "C5"
            else "",
        )

    return tube


@rule(
    "C5",
    "Does the longest prompt, started from a b(0) three times as large, end in the same tube?",
    control=True,
)
def other_start(data: xr.Dataset) -> Answer:
    """Fails where it ends more than three times as far away."""
    apart, near = float(data.softmax_astray[-1]), float(data.softmax_distance.max("time")[-1])
    return (
        judged(not apart > 3 * near, rests_on=[apart, near]),
        f"At the last time it is {apart:.2g} away from the infinite-prompt flow, against "
        f"{near:.2g} from the same start.",
    )


@rule(
    "C5",
    "Is there an L(eps) from which on the best risk over A = aI, b is within eps of the infinite "
    "prompt's?",
)
def needed_length(data: xr.Dataset) -> Answer:
    """Undecided where the lengths end before it."""
    eps = float(data.epsilon[min(1, data.sizes["epsilon"] - 1)])
    known = bool(np.isfinite(data.needed_length_softmax).all())
    return (
        "holds" if known else "undecided",
        f"For identity covariance and W = I/d, interpolated to about 1 %, L({eps:g}) = "
        f"{listed(data.needed_length_softmax.sel(epsilon=eps), '.2g', 'd = {}')}"
        + (
            f"; found for every eps down to {data.epsilon.min():g}."
            if known
            else "; not found for every eps asked."
        ),
    )


@rule("C5", "Does the excess risk fall like 1/L?")
def excess(data: xr.Dataset) -> Answer:
    """In part, at best: at the optimum of each length, not at the infinite-prompt endpoint in low
    dimension.
    """
    best, limit = exponents(data, "softmax_best"), exponents(data, "softmax_at_limit_endpoint")
    pairs = ", ".join(
        f"{x:.2f} ({sharp_exponent(float(x.dim) ** -0.5):.2f}) at d = {int(x.dim)}" for x in limit
    )
    return (
        judged(False, in_part=float(best.min()) > 0.98, rests_on=[best, limit]),
        f"At the optimum of each length the exponent is {span(best, '.2f')}. At the "
        "infinite-prompt endpoint, over the last two decades (and as L → ∞, predicted by g(H), "
        f"H² = tr(Σ⁻²)^-½): {pairs}; slower than 1/L for ever where tr Σ⁻² < 4.",
    )


@rule("C7", "Does trained softmax attention reach the risk of trained linear attention as L grows?")
def beside_linear(data: xr.Dataset) -> Answer:
    """Holds within 5 % at the longest prompt; in part where both tend to the Bayes risk at
    different constants.
    """
    ratio = (data.softmax_best / data.linear_best).isel(excess_length=-1)
    falls = [exponents(data, f"{kind}_best") for kind in ("softmax", "linear")]
    both = min(float(each.min()) for each in falls) > 0.9
    formula = float(abs(data.linear_best / data.linear_predicted - 1).max())
    return (
        judged(
            both and float(abs(ratio - 1).max()) < 0.05,
            in_part=both,
            rests_on=[ratio, *falls, formula],
        ),
        ("Both tend to the Bayes risk" if both else "They do not both tend to the Bayes risk")
        + f"; the excess of softmax is larger by a factor {listed(ratio, '.2f', 'd = {}')} at L = "
        f"{data.excess_length[-1]:.0e}. (Linear attention against its closed form: {formula:.0e}.)",
        f"Both attentions {'tend' if both else 'do not tend'} to the Bayes risk, and trained "
        f"softmax has {span(ratio, '.3g')} "
        "times the excess of linear.",
    )


RULES = (
    tube_rule("C5", "softmax"),
    tube_rule("C7", "linear"),
    other_start,
    needed_length,
    excess,
    beside_linear,
)
