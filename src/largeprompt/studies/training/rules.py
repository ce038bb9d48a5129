"""What is asked of training on long prompts: C5, C6, C7 and E2."""

import numpy as np
import xarray as xr

from largeprompt.runs.judging import Finding, at, judged, log_slope, rule
from largeprompt.studies.lengths import first_below

SAME = 1e-6  # relative error of an end point that counts as agreement
ARRIVED = 3.0  # flow times in units of L after which the drift is over


def falls(curve: xr.DataArray) -> bool:
    """Whether a curve falls from each length to the next."""
    return bool((curve.diff(curve.dims[-1]) < 0).all())


@rule("C5", "Does the flow at length L come closer to the infinite-prompt flow as L grows?")
def tube(data: xr.Dataset) -> Finding:
    """Holds where the largest distance falls with every length, at a power above 0.2 at the end."""
    sup = data.softmax_distance.max("time")
    slope = log_slope(sup.length[-3:], sup[-3:])
    return Finding(
        judged(falls(sup) and slope < -0.2, rests_on=[sup, slope]),
        f"Parameters trained on the longest prompts stay within {float(sup[-1]):.2g} of those "
        "trained on infinite ones.",
        "Parameters trained on long prompts do not stay near those trained on infinite ones.",
        {
            "largest distance at the shortest length": sup[0],
            "at the longest": sup[-1],
            "exponent in L at the end": slope,
        },
    )


@rule("C5", "Do the gradients of the finite and the infinite prompt become parallel and equal?")
def gradients(data: xr.Dataset) -> Finding:
    """Holds where, at every time on the way, the longest prompt's is within a tenth."""
    cosine, distance = data.softmax_gradient_cosine, data.softmax_gradient_distance
    worst, angle = float(distance.isel(gradient_length=-1).max()), cosine.isel(gradient_length=-1)
    good = worst < 0.1 and float(angle.min()) > 0.99 and falls(distance.max("gradient_time"))
    return Finding(
        judged(good, rests_on=[cosine, distance]),
        "Gradients of long prompts point where those of infinite prompts point: both systems "
        "move in parallel.",
        "Gradients of long prompts do not become those of infinite prompts.",
        {
            "cosine at the start, shortest prompt": cosine[0, 0],
            "at the longest prompt, all times": angle,
            "relative distance there": worst,
        },
    )


@rule("C5", "Is there a length from which the risk stays within eps of the infinite prompt's?")
def needed_length(data: xr.Dataset) -> Finding:
    """By the best risk over A = aI, b, for eps from 0.1 to 0.001; undecided beyond the lengths."""
    levels = xr.DataArray([0.1, 0.01, 0.001], dims="eps")
    needed = first_below(data.softmax_best, levels, "excess_length", between=True)
    best, limit = (_exponents(data, name) for name in ("softmax_best", "softmax_at_limit_endpoint"))
    outcome = judged(min(best) > 0.9, rests_on=[needed, best, limit])
    return Finding(
        outcome if np.isfinite(needed).all() else "undecided",
        "For every eps there is a length from which the risk is within eps of the infinite "
        "prompt's.",
        "The excess risk does not fall like one over the length.",
        {
            "length for an excess of 0.01": needed.isel(eps=1),
            "exponent of the excess in L at each length's optimum": best,
            "at the infinite prompt's end point": limit,
        },
    )


def _exponents(data: xr.Dataset, name: str) -> list[float]:
    """Power of 1/L of an excess risk over the last two decades, for each dimension."""
    length = data.excess_length.values
    far = data[name].isel(excess_length=length >= length[-1] / 100)
    return [-log_slope(far.excess_length, far.sel(dim=d)) for d in data.dim]


@rule("C5", "Does a start with three times the read-out end as near to the limit?", control=True)
def other_start(data: xr.Dataset) -> Finding:
    """Fails where it ends more than three times as far away."""
    apart, near = data.softmax_astray[-1], data.softmax_distance.max("time")[-1]
    return Finding(
        judged(not apart > 3 * near, rests_on=[apart, near]),
        numbers={"distance from the other start": apart, "from the same start": near},
    )


@rule("C5", "Does training on other inputs follow the flow on the limit of their own law?")
def other_inputs(data: xr.Dataset) -> Finding:
    """Holds where the distance falls with every length, at the end at a power above 0.7."""
    sup = data.input_distance.stack(path=("inputs", "input_start")).transpose("path", ...)
    slopes = [log_slope(sup.input_length[-2:], path[-2:]) for path in sup]
    return Finding(
        judged(falls(sup) and max(slopes) < -0.7, rests_on=[sup, slopes]),
        "Inputs that are not Gaussian train as theory says, around the limit of their own law.",
        "Inputs that are not Gaussian do not train along the limit of their own law.",
        {
            "largest distance at the shortest length": sup[:, 0],
            "at the longest": sup[:, -1],
            "exponent in L at the end": slopes,
        },
    )


@rule("C5", "Does training on other inputs follow the Gaussian theory's flow?", control=True)
def gaussian_theory(data: xr.Dataset) -> Finding:
    """Fails where it ends more than three times as far from it as from its own limit."""
    last = data.isel(input_length=-1)
    end, own = last.input_gaussian_distance, last.input_distance
    ratio = float((end / own).min())
    return Finding(
        judged(not ratio > 3, rests_on=[ratio]),
        numbers={
            "distance to the Gaussian theory's flow": end,
            "predicted": data.input_level,
            "to the flow on its own limit": own,
        },
    )


@rule("E2", "Do the trained parameters stay inside the Grönwall envelope computed on the way?")
def envelope(data: xr.Dataset) -> Finding:
    """For both attentions, all lengths and all times."""
    inside, ratios = True, {}
    for kind in ("softmax", "linear"):
        distance, bound = data[f"{kind}_distance"], data[f"{kind}_envelope"]
        inside &= bool((distance <= bound * (1 + 1e-9) + 1e-9).all())
        ratios[kind] = (bound / distance).isel(time=-1, length=-1)
    return Finding(
        judged(inside, rests_on=[*ratios.values(), data.softmax_envelope]),
        "Training stays in the tube computed around the infinite-prompt flow, which is "
        f"{float(ratios['softmax']):.2g} times too wide at the end.",
        "Training leaves the computed envelope around the infinite-prompt flow.",
        {f"envelope over distance at the end, {kind}": ratio for kind, ratio in ratios.items()},
    )


@rule("C6", "Does the balanced flow end at b = tr(Σ⁻²)^¼, A = Σ⁻¹/b, with the Bayes risk?")
def balanced(data: xr.Dataset) -> Finding:
    """For the infinite prompt; every flow must have converged."""
    one = at(data, start="balanced")
    wrong = float(np.maximum(one.end_b_error, one.end_A_error).max())
    moved, risk = float(one.end_conserved_error.max()), float(one.end_risk.max())
    good = wrong < SAME and moved < 1e-8 and risk < 1e-10 and bool(one.end_converged.all())
    return Finding(
        judged(good, rests_on=[wrong, moved, risk]),
        f"The infinite-prompt flow ends at the theorem's point, to {wrong:.1e}, with the Bayes "
        "risk.",
        "The infinite-prompt flow does not end at the theorem's point.",
        {
            "largest relative error of b and A": wrong,
            "of the conserved b² - ‖A‖²": moved,
            "largest excess risk at the end": max(risk, 0.0),
        },
    )


@rule("C6", "Do longer prompts end nearer to the Bayes risk?")
def bayes_risk(data: xr.Dataset) -> Finding:
    """Holds where the risk at the end falls with L, at a power above 0.7."""
    final = _finite(data).drift_risk.isel(drift_time=-1)
    slope = log_slope(final.drift_length, final)
    return Finding(
        judged(falls(final) and slope < -0.7, rests_on=[slope, final]),
        f"Long prompts reach the Bayes risk: the excess falls to {float(final[-1]):.2g}, like "
        "one over the length.",
        "The risk of long prompts does not fall to the Bayes risk.",
        {
            "excess risk at the shortest length": final[0],
            "at the longest": final[-1],
            "exponent in L": slope,
        },
    )


@rule("C6", "After training looks finished, do parameters drift on to their own length's optimum?")
def drift(data: xr.Dataset) -> Finding:
    """Holds where long prompts end at their optimum, and that is elsewhere than the theorem's."""
    end = _finite(data).isel(drift_time=-1)
    time = float(data.drift_time[-1]) * (1 + 1e-9)
    end = end.isel(drift_length=np.flatnonzero(end.drift_length.values * ARRIVED <= time))
    far = float(end.drift_b[-1] / data.drift_theorem_b - 1)
    own = float(abs(end.drift_b / end.drift_optimal_b - 1).max())
    return Finding(
        judged(own < 1e-3 and abs(far) > 0.1, rests_on=[far, own]),
        "Long after the risk has settled, parameters of long prompts drift away from the "
        "theorem's, to their own optimum.",
        "Parameters of long prompts do not drift to the optimum of their own length.",
        {
            "relative distance of b to its own optimum": own,
            "to the theorem's b, longest prompt": far,
        },
    )


@rule("C6", "Do other starts end where the conserved b² - ‖A‖² says?")
def others(data: xr.Dataset) -> Finding:
    """All starts but the balanced one: larger, unbalanced, and with b(0) < 0."""
    rest = data.drop_sel(start="balanced", errors="ignore")
    worst, risk = float(np.maximum(rest.end_b_error, rest.end_A_error).max()), rest.end_risk.max()
    larger = at(data.end_theorem_error, start="balanced, alpha 3 times the bound").max()
    return Finding(
        judged(worst < SAME, rests_on=[worst, risk, larger]),
        "Every start tried reaches the Bayes risk; the theorem's bound on its size is not needed.",
        "Some starts do not end where the conserved quantity says.",
        {
            "largest relative error of b and A": worst,
            "of b against the theorem's, start three times the bound": larger,
            "largest excess risk": max(float(risk), 0.0),
        },
    )


@rule("C6", "Does an unbalanced start end at the theorem's b?", control=True)
def unbalanced(data: xr.Dataset) -> Finding:
    """Fails where every unbalanced start misses it."""
    starts = [name for name in data.start.values if "unbal" in name]
    missed = at(data.end_theorem_error, start=starts)
    return Finding(
        judged(not float(missed.min()) > SAME, rests_on=[missed]),
        numbers={"relative distance to the theorem's b": missed},
    )


@rule("C7", "Do softmax and linear attention approach the same training dynamics as L grows?")
def dynamics(data: xr.Dataset) -> Finding:
    """Holds where their limits are one flow, and linear attention comes nearer to it too."""
    limits = [data[f"{kind}_limit_theta"] for kind in ("softmax", "linear")]
    apart = float(abs(limits[0] - limits[1]).max())
    soft, line = (data[f"{kind}_distance"].max("time") for kind in ("softmax", "linear"))
    # linear attention's distance is proportional to 1/L
    worth = line.length[-1] * line[-1] / soft[-1]
    return Finding(
        judged(apart < 1e-6 and falls(soft) and falls(line), rests_on=[apart, soft, line]),
        "Softmax and linear attention train along the same limit; softmax needs far longer "
        "prompts to be near it.",
        "Softmax and linear attention do not approach the same flow.",
        {
            "distance of the two limits": apart,
            "largest distance to it at the longest prompt, softmax": soft[-1],
            "linear": line[-1],
            "length at which linear attention is as far as softmax there": worth,
        },
    )


@rule("C7", "Trained at each length, do both attentions tend to the Bayes risk?")
def both_trained(data: xr.Dataset) -> Finding:
    """Holds where both excess risks fall at a power above 0.9 over the last two decades."""
    slopes = [*_exponents(data, "softmax_best"), *_exponents(data, "linear_best")]
    ratio = (data.softmax_best / data.linear_best).isel(excess_length=-1)
    formula = float(abs(data.linear_best / data.linear_predicted - 1).max())
    return Finding(
        judged(min(slopes) > 0.9, rests_on=[ratio, slopes, formula]),
        "Trained softmax tends to the Bayes risk as fast as linear attention, at up to "
        f"{float(ratio.max()):.2g} times its excess.",
        "The two trained attentions do not both tend to the Bayes risk.",
        {"excess of softmax over linear at the longest prompt": ratio, "exponents in L": slopes},
    )


def _finite(data: xr.Dataset) -> xr.Dataset:
    """The finite lengths of the drift."""
    return data.isel(drift_length=np.flatnonzero(np.isfinite(data.drift_length.values)))


RULES = (
    tube,
    gradients,
    needed_length,
    other_start,
    other_inputs,
    gaussian_theory,
    envelope,
    bayes_risk,
    balanced,
    drift,
    others,
    unbalanced,
    dynamics,
    both_trained,
)
