"""What the data says of tokens that are not Gaussian, or not independent (N1)."""

import math

import numpy as np
import xarray as xr

from largeprompt.runs.judging import FALSE_ALARM, Answer, at, judged, listed, log_slope, rule, span
from largeprompt.studies.nongaussian.comparisons import (
    counted,
    known_exactly,
    largest_allowed,
    largest_score,
    least_chance,
    setting,
)
from largeprompt.studies.nongaussian.config import CONTROL

LEVEL = 5.0  # a curve has levelled off where the gap is this many times the distance to the limit
ROUTES = 1e-8  # relative difference of exact errors by two routes that counts as none
LONG = 0.2  # a prompt is long where the first order is this near to the exact error


def least_likely(part: xr.Dataset, kind: str = "") -> float:
    """Probability of the least likely of the drawn distances to the limit, or of those to the
    affine read-out (kind 'affine_').
    """
    return least_chance(
        part[f"drawn_{kind}mse"],
        part[f"{kind}mse"],
        part[f"{kind}variance"],
        setting(part, "replicas"),
    )


def _others(data: xr.Dataset) -> xr.Dataset:
    return data.sel(family=[name for name in data.family.values if name != CONTROL])


@rule("N1", "Do independent Gaussian tokens give back the base theory?")
def base(data: xr.Dataset) -> Answer:
    """Holds where every mean squared distance is likely by the exact law, and the limit is the
    affine read-out.
    """
    one = at(data, family=CONTROL).isel(member=0)
    chance, allowed = least_likely(one), FALSE_ALARM / counted(data)
    gap = float(abs(one.gap).max())
    return (
        judged(chance >= allowed and gap < 1e-12, rests_on=[chance, gap]),
        f"Of {one.drawn_mse.size} mean squared distances to the limit the one least likely by the "
        f"exact law has probability {chance:.2g}, {allowed:.0e} allowed (false alarms of the "
        f"whole study in {FALSE_ALARM:g} of runs); gap to the affine read-out at most {gap:.0e}.",
    )


@rule(
    "N1",
    "Do prompts of tokens that are not Gaussian tend to the tilt limit of their law, at the "
    "predicted rate?",
)
def falls(data: xr.Dataset) -> Answer:
    """Holds where two routes give one exact law, drawn errors are likely by it and, where prompts
    are long, fall at its rate.
    """
    rest = _others(data)
    chance, allowed = least_likely(rest), FALSE_ALARM / counted(data)
    first = (rest.first_order / rest.mse).isel(length=-1)
    long = abs(first - 1) < LONG  # by the predictions alone
    last = rest.where(long).isel(length=slice(-2, None))
    steps = math.log(float(last.length[-1]) / float(last.length[0]))
    drawn, exact = (
        xr.apply_ufunc(np.log, last[name]).diff("length").isel(length=0) / steps
        for name in ("drawn_mse", "mse")
    )
    error = (
        np.sqrt(
            (last.variance / last.mse**2).sum("length", skipna=False) / setting(data, "replicas")
        )
        / steps
    )
    score, most = largest_score(drawn - exact, error), largest_allowed(data)
    left = int((rest.gap.notnull() & ~long).sum())
    routes = float(data.route_difference.max())
    good = routes < ROUTES and chance >= allowed and score <= most and float(exact.max()) < -0.8
    return (
        judged(good and not left, in_part=good, rests_on=[chance, score, exact.max(), routes]),
        f"Of {int(rest.drawn_mse.notnull().sum())} mean squared distances from L = "
        f"{int(rest.length[0])} to {int(rest.length[-1])} the one least likely by the exact law "
        f"has probability {chance:.2g}, {allowed:.0e} allowed. In {int(exact.notnull().sum())} "
        f"pairs of law and tilt the first order is within {LONG:.0%} of the exact error at the "
        f"end: there errors fall with exponent {exact.min():.2f} to {exact.max():.2f} by the "
        f"exact law, and drawn ones within {score:.1f} standard errors of that; {left} pairs need "
        f"longer prompts. The exact errors are alike to {routes:.0e} by the library's law and by "
        "the atoms of a rule.",
    )


@rule(
    "N1",
    "Does the distance to the affine read-out level off at the predicted gap, in every family?",
)
def levels(data: xr.Dataset) -> Answer:
    """Holds where drawn distances are likely, and those whose gap exceeds the noise stand within 5
    % of it, in every family.
    """
    rest = _others(data)
    chance, allowed = least_likely(rest, "affine_"), FALSE_ALARM / counted(data)
    last = rest.isel(length=-1)
    level = np.sqrt(last.drawn_affine_mse) / abs(last.gap)
    flat = last.gap**2 > LEVEL**2 * last.mse
    names = [name for name in rest.family.values if bool(flat.sel(family=name).any())]
    worst = float(abs(level.where(flat) - 1).max())
    missing = len(rest.family) - len(names)
    good = chance >= allowed and worst <= 0.05
    return (
        judged(good and not missing, in_part=good, rests_on=[chance, worst]),
        f"The least likely of {int(rest.drawn_affine_mse.notnull().sum())} has probability "
        f"{chance:.2g}, {allowed:.0e} allowed. At L = {int(rest.length[-1])} the "
        f"{int(flat.sum())} pairs whose gap is {LEVEL:g} times the noise (families: "
        f"{', '.join(map(str, names))}) stand at {span(level.where(flat), '.3f')} times the "
        "predicted gap.",
        "Other tokens have limits of their own, as far from the affine map as predicted, to "
        f"{100 * worst:.2g} %.",
    )


@rule("N1", "Is the affine read-out the limit for tokens that are not Gaussian?", control=True)
def affine(data: xr.Dataset) -> Answer:
    """Fails where some distance to it is further from that to a limit than chance allows."""
    rest = _others(data).isel(length=-1)
    away = abs(rest.drawn_affine_mse - rest.mse) / rest.drawn_affine_error
    allowed = largest_allowed(data)
    shown = int((away > allowed).sum())
    return (
        judged(not shown, rests_on=[away.max()]),
        f"At L = {int(rest.length)} the distance to it is not that of a limit in {shown} of "
        f"{int(away.notnull().sum())} pairs of law and tilt (more than {allowed:.1f} standard "
        f"errors), by up to {away.max():.0f} of them; gaps are up to "
        f"{abs(rest.gap / rest.affine).max():.2g} of the read-out.",
    )


@rule("N1", "Do the third and fourth cumulants explain the gap?")
def ladder(data: xr.Dataset) -> Answer:
    """Holds to 10 % everywhere; in part where within half the radius of convergence they give at
    least half.
    """
    rest = _others(data)
    fourth = (rest.third + rest.fourth) / rest.gap
    inside = rest.tilt < rest.radius / 2
    near, far = fourth.where(inside), fourth.where((rest.tilt < rest.radius) & ~inside)
    beyond = fourth.where(rest.tilt >= rest.radius)
    alone = (
        (rest.third / rest.gap).sel(family="skew")
        if "skew" in rest.family.values
        else rest.third * np.nan
    )
    worst, most = float(abs(near - 1).max()), float(abs(fourth - 1).max())
    by_tilt = "; ".join(f"u = {u:g}: {span(fourth.sel(tilt=u))}" for u in rest.tilt.values)
    return (
        judged(worst <= 0.5 and most <= 0.1, in_part=worst <= 0.5, rests_on=[worst]),
        f"Share of the gap that they give, over all laws: {by_tilt}. Within half the radius of "
        f"convergence {span(near)}, within the radius {span(far)}, beyond it "
        f"{span(beyond) if bool(beyond.notnull().any()) else 'no case'}. The third alone, skewed "
        f"laws: {span(alone)} (0 for the symmetric ones).",
    )


@rule("N1", "Does the gap scale with the distance of the law from the Gaussian as predicted?")
def scaling(data: xr.Dataset) -> Answer:
    """Holds where the exponents are right to 2 % and the nearest gaps to 5 %."""
    rest = _others(data)
    found, numbers, good = [], [], True
    for name in rest.family.values:
        one = rest.sel(family=name).isel(step=slice(0, 2))
        slope, power = log_slope(one.distance, abs(one.scaling_gap)), float(one.power)
        ratio = float((one.scaling_gap / one.scaling_predicted)[0])
        good = good and abs(slope / power - 1) < 0.02 and abs(ratio - 1) < 0.05
        found.append(f"{name} {slope:.3f} ({power:g}, {ratio:.4f})")
        numbers += [slope, ratio]
    return (
        judged(good, rests_on=numbers),
        "Exponent of the gap near the Gaussian (predicted, and exact gap over the predicted one, "
        f"nearest): {', '.join(found)}.",
    )


def interpolated_crossing(data: xr.Dataset, name: str) -> xr.DataArray:
    """Length at which a squared distance to the limit passes that of the gap, log-log interpolated;
    NaN where it does not.
    """
    logs = np.log(data[name]) - 2 * np.log(abs(data.gap).where(data.gap != 0))
    x = np.log(data.length.values.astype(float))

    def one(values: np.ndarray) -> float:
        after = np.flatnonzero(values <= 0)
        if np.isnan(values).any() or not len(after) or after[0] == 0:
            return math.nan
        i = int(after[0])
        share = values[i - 1] / (values[i - 1] - values[i])
        return float(np.exp(x[i - 1] + share * (x[i] - x[i - 1])))

    found: xr.DataArray = xr.apply_ufunc(one, logs, input_core_dims=[["length"]], vectorize=True)
    return found


@rule("N1", "From which length on does the gap show, and is that length predicted?")
def crossing(data: xr.Dataset) -> Answer:
    """Holds where drawn curves cross the gap within chance of the predicted length.

    An error of the curve becomes one of the length, δ log L = δ log mse / |d log mse / d log L|:
    larger where the curve is flat.
    """
    rest = _others(data)
    # the same interpolation for both
    ratio = interpolated_crossing(rest, "drawn_mse") / interpolated_crossing(rest, "mse")
    seen = int(ratio.notnull().sum())
    around = (rest.length >= rest.crossing / 10) & (rest.length <= 10 * rest.crossing)
    curve = np.log(rest.mse).assign_coords(length=np.log(rest.length)).differentiate("length")
    slope = abs(curve.assign_coords(length=rest.length))
    error = (
        (np.sqrt(rest.variance / setting(data, "replicas")) / rest.mse / slope)
        .where(around)
        .max("length")
    )
    apart: xr.DataArray = xr.apply_ufunc(np.log, ratio)
    score, allowed = largest_score(apart, error), largest_allowed(data)
    first = (rest.crossing_first_order / rest.crossing).where(
        np.isfinite(rest.crossing) & (rest.crossing > 1)
    )
    close = int((abs(first - 1) < LONG).sum())
    examples = ", ".join(
        f"{row.sel(tilt=row.tilt[len(row.tilt) // 2]):.3g} ({name} "
        f"{rest.law_parameter.sel(family=name)[0]:g})"
        for name in rest.family.values
        for row in [rest.crossing.sel(family=name).isel(member=0)]
    )
    return (
        judged(score <= allowed, rests_on=[score]) if seen else "undecided",
        f"The gap passes the noise of a finite prompt at L = {examples}, u = "
        f"{rest.tilt[len(rest.tilt) // 2]:g}. Drawn prompts cross in {seen} pairs within the "
        f"lengths drawn, at {span(ratio)} times the predicted length (within {score:.1f} standard "
        f"errors, {allowed:.1f} allowed). The first order alone is within {LONG:.0%} of the exact "
        f"length in {close} of {int(first.notnull().sum())} pairs.",
    )


@rule(
    "N1",
    "Is a prompt of tokens repeated r times worth exactly L/r independent ones, and one without "
    "correlation worth L?",
)
def repeated(data: xr.Dataset) -> Answer:
    """Holds where every mean squared error is within chance of the exact law."""
    part = data.sel(dependence=known_exactly(data))
    whole, allowed = part.dependent_effective % 1 == 0, largest_allowed(data)
    score = largest_score(
        (part.dependent_drawn - part.dependent_predicted).where(whole), part.dependent_error
    )
    return (
        judged(score <= allowed, rests_on=[score]),
        f"{int(whole.sum())} mean squared errors of {', '.join(map(str, part.dependence.values))} "
        f"lie within {score:.1f} standard "
        f"errors of the exact law at that length, {allowed:.1f} allowed.",
    )


def _correlated(data: xr.Dataset) -> xr.Dataset:
    return data.sel(
        dependence=[name for name in data.dependence.values if str(name) not in known_exactly(data)]
    )


@rule(
    "N1",
    "Is a prompt of autocorrelated tokens as good as the predicted effective number of independent "
    "ones?",
)
def autocorrelated(data: xr.Dataset) -> Answer:
    """Holds where drawn errors are within 10 % of the exact law at the effective length and 4
    standard errors; in part: 50 %.
    """
    part = _correlated(data).isel(dependent_length=-1)
    ratio, error = (
        part.dependent_drawn / part.dependent_predicted,
        part.dependent_error / part.dependent_predicted,
    )
    off = float((abs(ratio - 1) - 4 * error).max())
    share = part.dependent_effective / part.dependent_length
    text = "; ".join(
        f"{name}: {listed(share.sel(dependence=name), '.3f')}" for name in part.dependence.values
    )
    return (
        judged(off < 0.1, in_part=off < 0.5, rests_on=[off]),
        f"L_eff/L at L = {int(part.dependent_length)}, for σ² = {listed(part.score_variance)}: "
        f"{text}. Drawn errors are {span(ratio)} (± {error.max():.2f}) times the exact law at "
        "L_eff.",
    )


@rule(
    "N1", "Are autocorrelated tokens as good as the same number of independent ones?", control=True
)
def as_independent(data: xr.Dataset) -> Answer | None:
    """Fails where some error is further from that of independent tokens than chance allows."""
    part = _correlated(data).isel(dependent_length=-1)
    if "AR(1) 0" not in data.dependence.values:
        return None
    base = data.dependent_predicted.sel(dependence="AR(1) 0").isel(dependent_length=-1)
    worst, allowed = (
        largest_score(part.dependent_drawn - base, part.dependent_error),
        largest_allowed(data),
    )
    return (
        judged(worst <= allowed, rests_on=[worst]),
        f"Their squared error is {span(part.dependent_drawn / base)} times that of independent "
        f"ones at L = {int(part.dependent_length)}, up to {worst:.0f} standard errors off.",
    )


RULES = (
    base,
    falls,
    levels,
    affine,
    ladder,
    scaling,
    crossing,
    repeated,
    autocorrelated,
    as_independent,
)
