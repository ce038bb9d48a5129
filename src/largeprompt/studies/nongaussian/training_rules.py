"""What the data says of training on inputs that are not Gaussian (C5)."""

import math

import numpy as np
import xarray as xr

from largeprompt.runs.judging import Answer, allowed_score, at, judged, log_slope, rule, span
from largeprompt.studies.nongaussian.comparisons import counted, largest_score, setting
from largeprompt.studies.nongaussian.config import CONTROL

RESOLVED = 0.1  # an allowed distance that is more of a parameter than this decides nothing


def _inputs(data: xr.Dataset) -> xr.Dataset:
    return data.sel(inputs=[name for name in data.inputs.values if name != CONTROL])


@rule(
    "C5",
    "Does training on inputs that are not Gaussian stay in a tube around the flow on the tilt "
    "limit that closes as L grows?",
)
def tube(data: xr.Dataset) -> Answer:
    """Holds where the tube narrows with every length, at the end at a power above 0.7."""
    part = _inputs(data)
    sup = part.flow_distance
    falls = bool((sup.diff("flow_length") < 0).all())
    far = sup.isel(flow_length=slice(-2, None))
    paths = far.stack(path=("inputs", "start")).transpose("path", ...)
    slopes = [log_slope(far.flow_length, path) for path in paths]
    text = ", ".join(
        f"{span(sup.sel(inputs=name).isel(flow_length=-1))} ({name})" for name in part.inputs.values
    )
    return (
        judged(falls and max(slopes) < -0.7, rests_on=[*slopes, sup]),
        f"sup ‖θ_L - θ_∞‖ up to t = {part.time[-1]:g} on the exact risks falls from "
        f"{span(sup.isel(flow_length=0))} at L = "
        f"{sup.flow_length[0]:g} to {text} at L = {sup.flow_length[-1]:g}, with exponent "
        f"{span(slopes, '.2f')} at the end.",
    )


def _scores(data: xr.Dataset) -> tuple[float, float]:
    """Largest distance of drawn flows from exact ones at the last time (tr A/d, b) in standard
    errors; the largest such error.
    """
    end = data.isel(time=-1)
    exact = at(end.flow_theta, flow_length=data.drawn_length.values).rename(
        flow_length="drawn_length"
    )
    difference = end.trained_theta - exact.assign_coords(drawn_length=data.drawn_length)
    diagonal = [
        name for name in data.parameter.values if str(name) in {f"A[{i}, {i}]" for i in range(9)}
    ]
    trace = difference.sel(parameter=diagonal).mean("parameter")
    error = np.sqrt((end.trained_error.sel(parameter=diagonal) ** 2).sum("parameter")) / math.sqrt(
        len(diagonal)
    )
    parts = [(trace, error), (difference.sel(parameter="b"), end.trained_error.sel(parameter="b"))]
    size = abs(
        xr.concat(
            [exact.sel(parameter=diagonal).mean("parameter"), exact.sel(parameter="b")], "which"
        )
    ).max("which")
    size = size.assign_coords(drawn_length=data.drawn_length)  # the larger of the two
    return max(largest_score(*part) for part in parts), max(
        float((own / size).max()) for _, own in parts
    )


@rule("C5", "Do flows on drawn prompts agree with the flows on the exact risk of their length?")
def trained(data: xr.Dataset) -> Answer:
    """Fails beyond chance; undecided where chance allows more than a tenth of a parameter."""
    part = _inputs(data)
    (score, error), allowed = (
        _scores(part),
        allowed_score(counted(data), degrees=setting(data, "sets") - 1),
    )
    exact = at(part.flow_distance, flow_length=part.drawn_length.values).values
    ratio = part.trained_distance / exact
    return (
        "undecided"
        if score <= allowed and allowed * error >= RESOLVED
        else judged(score <= allowed, rests_on=[score, error]),
        f"Mean tr A/d and b at the last time, {setting(data, 'sets')} sets of prompts, L = "
        f"{part.drawn_length[0]:g} to {part.drawn_length[-1]:g}: within {score:.1f} standard "
        f"errors, {allowed:.1f} allowed (Student's law), which are {allowed * error:.1%} of the "
        "larger of them at most. The tube of the drawn flows is "
        f"{span(ratio.isel(drawn_length=0))} times the predicted one at L = "
        f"{part.drawn_length[0]:g}.",
    )


@rule(
    "C5",
    "Is the distance to the Gaussian theory's flow the predicted one, and does it level off where "
    "the two infinite prompts differ?",
)
def misled(data: xr.Dataset) -> Answer:
    """Holds where drawn flows are as far off as predicted, and the longest is within 10 % of the
    level.
    """
    part = _inputs(data)
    level = part.level
    exact = part.flow_gauss_distance.isel(flow_length=-1)
    drawn, error = (
        part.trained_gauss.isel(drawn_length=-1),
        part.trained_gauss_error.isel(drawn_length=-1),
    )
    predicted = at(part.flow_gauss_distance, flow_length=float(part.drawn_length[-1]))
    # a norm is never below its noise
    floor = np.sqrt((part.trained_error.isel(drawn_length=-1) ** 2).sum("parameter")).max("time")
    off = float((abs(drawn - predicted) - 6 * error - floor).max())
    flat = float(abs(exact / level - 1).max())
    text = ", ".join(
        f"{name} {drawn.sel(inputs=name, start=start):.3f} ± "
        f"{error.sel(inputs=name, start=start):.3f} "
        f"({level.sel(inputs=name, start=start):.3f}, {start})"
        for name in part.inputs.values
        for start in part.start.values
    )
    bayes = setting(data, "noise_variance") / 2
    return (
        judged(off <= 0 and flat < 0.1, rests_on=[off, flat]),
        f"sup distance of the flow on drawn prompts at L = {part.drawn_length[-1]:g} (of the two "
        f"limits): {text}. At L = {part.flow_length[-1]:g} it is within {flat:.1%} of the level. "
        "At the Gaussian theory's parameters the infinite prompt has risk "
        f"{span(part.misled_risk)}, at its own flow's {span(part.limit_risk)}; Bayes {bayes:g}.",
    )


@rule("C5", "Does training on Gaussian inputs give back the base theory?")
def gaussian_training(data: xr.Dataset) -> Answer | None:
    """Fails beyond chance; undecided where chance allows more than a tenth of a parameter."""
    if CONTROL not in data.inputs.values:
        return None
    one = data.sel(inputs=[CONTROL])
    (score, error), allowed = (
        _scores(one),
        allowed_score(counted(data), degrees=setting(data, "sets") - 1),
    )
    level, end = float(one.level.max()), float(one.flow_gauss_distance.isel(flow_length=-1).max())
    first = float(one.flow_gauss_distance.isel(flow_length=0).max())
    good = score <= allowed and level <= 1e-9 and end <= first
    return (
        "undecided"
        if good and allowed * error >= RESOLVED
        else judged(good, rests_on=[score, error, level, end, first]),
        f"Drawn flows lie within {score:.1f} standard errors of the exact flows of "
        f"LinearRegression, {allowed:.1f} allowed; tilt limit and Gaussian theory differ by "
        f"{level:.0e}; the distance to them falls from {first:.2g} to {end:.2g}.",
    )


@rule(
    "C5",
    "Does training on other inputs follow the Gaussian theory's flow as L grows?",
    control=True,
)
def follows_gaussian(data: xr.Dataset) -> Answer:
    """Fails where it ends more than three times as far from it as from the tilt flow."""
    part = _inputs(data)
    end, own = (
        part.flow_gauss_distance.isel(flow_length=-1),
        part.flow_distance.isel(flow_length=-1),
    )
    nearest = float((end / own).min())
    return (
        judged(nearest <= 3, rests_on=[nearest]),
        f"At L = {part.flow_length[-1]:g} it is {span(end)} away from it, {span(end / own)} times "
        "as far as from the tilt flow.",
    )


TRAINING_RULES = (tube, trained, misled, gaussian_training, follows_gaussian)
