"""What the data of the study `nongaussian` says: one rule for each question."""

from __future__ import annotations

import json
import math

import numpy as np
import xarray as xr

from largeprompt.runs.study import Outcome, Verdict, log_slope

FALSE_ALARM = 1e-6  # of all comparisons of samples with predictions together
CONTROL = "Gaussian"
LEVEL = 5.0  # a curve has levelled off where the gap is this many times the distance to the limit
RESOLVED = 0.1  # an allowed distance that is more of a parameter than this decides nothing
LONG = 0.2  # a prompt is long where the first order is this near to the exact error


def comparisons(data: xr.Dataset) -> int:
    """How many sampled numbers are compared with predicted ones."""
    static = 4 * int(data.drawn_mse.notnull().sum())
    independent = int((data.dependent_drawn * 0 + 1).sel(dependence=_independent(data)).sum())
    return static + independent + 2 * int(data.trained_theta.isel(time=-1, parameter=-1).notnull().sum())


def least_probability(mean: xr.DataArray, expected: xr.DataArray, variance: xr.DataArray, count: int) -> float:
    """Smallest two-sided probability of means of ``count`` squared distances, each mean a gamma variable.

    With the exact expectation and variance it is right for squared normal variables, and it allows for rare prompts that decide.
    """
    from scipy.stats import gamma

    shape = count * expected**2 / variance.where(variance > 1e-12 * expected**2, np.nan)
    ratio = mean / expected * shape
    return float(2 * np.nanmin(np.fmin(gamma.cdf(ratio, shape), gamma.sf(ratio, shape))))  # members that a family lacks are NaN


def largest_score(difference: xr.DataArray, error: xr.DataArray) -> float:
    """Largest distance in standard errors."""
    return float((abs(difference) / error).max())


def allowed_score(data: xr.Dataset, degrees: float = math.inf) -> float:
    """Distance in standard errors that fewer than one run in a million passes anywhere; Student's law for few repetitions."""
    from scipy.stats import norm, t

    level = FALSE_ALARM / (2 * comparisons(data))
    return float(norm.isf(level) if math.isinf(degrees) else t.isf(level, degrees))


def _independent(data: xr.Dataset) -> list[str]:
    """Cases whose law is known exactly: independent tokens, and tokens that are only repeated."""
    return [str(name) for name in data.dependence.values if str(name).startswith("repeated") or name == "AR(1) 0"]


def _others(data: xr.Dataset) -> xr.Dataset:
    return data.sel(family=[name for name in data.family.values if name != CONTROL])


def _range(values: xr.DataArray) -> str:
    return f"{float(values.min()):.2g} to {float(values.max()):.2g}"


def verdicts(data: xr.Dataset) -> list[Verdict]:
    """N1 for independent tokens, N1 for dependent ones, C5, each with its controls."""
    static = [_base(data), _falls(data), _levels(data), _affine(data), _ladder(data), _scaling(data), _crossing(data)]
    dependent = [_repeated(data), _autocorrelated(data), _as_independent(data)]
    return [*static, *dependent, _tube(data), _trained(data), _misled(data), _gaussian_training(data), _follows_gaussian(data)]


def _base(data: xr.Dataset) -> Verdict:
    one = data.sel(family=CONTROL).isel(member=0)
    chance, allowed = (
        least_probability(one.drawn_mse, one.mse, one.variance, _setting(data, "replicas")),
        FALSE_ALARM / comparisons(data),
    )
    gap = float(abs(one.gap).max())
    return Verdict(
        "N1",
        "Do independent Gaussian tokens give back the base theory?",
        "holds" if chance >= allowed and gap < 1e-12 else "fails",
        f"Of {one.drawn_mse.size} mean squared distances to the limit the one least likely by the exact law has probability "
        f"{chance:.2g}, "
        f"{allowed:.0e} allowed (false alarms of the whole study in {FALSE_ALARM:g} of runs); gap to the affine read-out at "
        f"most {gap:.0e}.",
    )


def _falls(data: xr.Dataset) -> Verdict:
    rest = _others(data)
    chance, allowed = (
        least_probability(rest.drawn_mse, rest.mse, rest.variance, _setting(data, "replicas")),
        FALSE_ALARM / comparisons(data),
    )
    first = (rest.first_order / rest.mse).isel(length=-1)
    long = abs(first - 1) < LONG  # by the predictions alone
    last = rest.where(long).isel(length=slice(-2, None))
    steps = math.log(float(last.length[-1]) / float(last.length[0]))
    drawn, exact = (xr.apply_ufunc(np.log, last[name]).diff("length").isel(length=0) / steps for name in ("drawn_mse", "mse"))
    error = np.sqrt((last.variance / last.mse**2).sum("length", skipna=False) / _setting(data, "replicas")) / steps
    score, most = largest_score(drawn - exact, error), allowed_score(data)
    left = int((rest.gap.notnull() & ~long).sum())
    good = chance >= allowed and score <= most and float(exact.max()) < -0.8
    return Verdict(
        "N1",
        "Do prompts of tokens that are not Gaussian tend to the tilt limit of their law, at the predicted rate?",
        ("holds in part" if left else "holds") if good else "fails",
        f"Of {int(rest.drawn_mse.notnull().sum())} mean squared distances from L = {int(rest.length[0])} to "
        f"{int(rest.length[-1])} the one least likely by the exact law has probability {chance:.2g}, {allowed:.0e} allowed. In "
        f"{int(exact.notnull().sum())} pairs of law and tilt the first order is within {LONG:.0%} of the exact error at the "
        "end: there "
        f"errors fall like L^{float(exact.min()):.2f} to L^{float(exact.max()):.2f} by the exact law, and drawn ones within "
        f"{score:.1f} "
        f"standard errors of that; {left} pairs need longer prompts.",
    )


def _levels(data: xr.Dataset) -> Verdict:
    rest = _others(data)
    chance = least_probability(rest.drawn_affine_mse, rest.affine_mse, rest.affine_variance, _setting(data, "replicas"))
    allowed = FALSE_ALARM / comparisons(data)
    last = rest.isel(length=-1)
    level = np.sqrt(last.drawn_affine_mse) / abs(last.gap)
    flat = last.gap**2 > LEVEL**2 * last.mse
    names = [name for name in rest.family.values if bool(flat.sel(family=name).any())]
    worst = float(abs(level.where(flat) - 1).max())
    missing = len(rest.family) - len(names)
    outcome: Outcome = "fails" if chance < allowed or worst > 0.05 else "holds in part" if missing else "holds"
    return Verdict(
        "N1",
        "Does the distance to the affine read-out level off at the predicted gap, in every family?",
        outcome,
        f"The least likely of {int(rest.drawn_affine_mse.notnull().sum())} has probability {chance:.2g}, {allowed:.0e} allowed. "
        f"At L = {int(rest.length[-1])} the {int(flat.sum())} pairs whose gap is {LEVEL:g} times the noise (families: "
        f"{', '.join(map(str, names))}) stand at {float(level.where(flat).min()):.3f} to {float(level.where(flat).max()):.3f} "
        "times the predicted gap.",
    )


def _affine(data: xr.Dataset) -> Verdict:
    rest = _others(data).isel(length=-1)
    away = abs(rest.drawn_affine_mse - rest.mse) / rest.drawn_affine_error
    allowed = allowed_score(data)
    shown = int((away > allowed).sum())
    return Verdict(
        "N1",
        "Is the affine read-out the limit for tokens that are not Gaussian?",
        "fails" if shown else "holds",
        f"At L = {int(rest.length)} the distance to it is not that of a limit in {shown} of {int(away.notnull().sum())} pairs "
        "of law and "
        f"tilt (more than {allowed:.1f} standard errors), by up to {float(away.max()):.0f} of them; gaps are up to "
        f"{float(abs(rest.gap / rest.affine).max()):.2g} of the read-out.",
        control=True,
    )


def _ladder(data: xr.Dataset) -> Verdict:
    rest = _others(data)
    fourth = (rest.third + rest.fourth) / rest.gap
    inside = rest.tilt < rest.radius / 2
    near, far = fourth.where(inside), fourth.where((rest.tilt < rest.radius) & ~inside)
    beyond = fourth.where(rest.tilt >= rest.radius)
    alone = (rest.third / rest.gap).sel(family="skew") if "skew" in rest.family.values else rest.third * np.nan
    worst = float(abs(near - 1).max())
    outcome: Outcome = "fails" if worst > 0.5 else "holds in part" if float(abs(fourth - 1).max()) > 0.1 else "holds"
    by_tilt = "; ".join(f"u = {float(u):g}: {_range(fourth.sel(tilt=u))}" for u in rest.tilt.values)
    return Verdict(
        "N1",
        "Do the third and fourth cumulants explain the gap?",
        outcome,
        f"Share of the gap that they give, over all laws: {by_tilt}. Within half the radius of convergence {_range(near)}, within "
        f"the radius {_range(far)}, beyond it {_range(beyond) if bool(beyond.notnull().any()) else 'no case'}. The third "
        "alone, skewed "
        f"laws: {_range(alone)} (0 for the symmetric ones).",
    )


def _scaling(data: xr.Dataset) -> Verdict:
    rest = _others(data)
    found, good = [], True
    for name in rest.family.values:
        one = rest.sel(family=name).isel(step=slice(0, 2))
        slope, power = log_slope(one.distance, abs(one.scaling_gap)), float(one.power)
        ratio = float((one.scaling_gap / one.scaling_predicted)[0])
        good = good and abs(slope / power - 1) < 0.02 and abs(ratio - 1) < 0.05
        found.append(f"{name} {slope:.3f} ({power:g}, {ratio:.4f})")
    return Verdict(
        "N1",
        "Does the gap scale with the distance of the law from the Gaussian as predicted?",
        "holds" if good else "fails",
        f"Exponent of the gap near the Gaussian (predicted, and exact gap over the predicted one, nearest): {', '.join(found)}.",
    )


def interpolated_crossing(data: xr.Dataset, name: str) -> xr.DataArray:
    """Length at which a squared distance to the limit passes that of the gap, log-log interpolated; NaN where it does not."""
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


def _crossing(data: xr.Dataset) -> Verdict:
    rest = _others(data)
    ratio = interpolated_crossing(rest, "drawn_mse") / interpolated_crossing(rest, "mse")  # the same interpolation for both
    seen = int(ratio.notnull().sum())
    around = (rest.length >= rest.crossing / 10) & (rest.length <= 10 * rest.crossing)
    error = (np.sqrt(rest.variance / _setting(data, "replicas")) / rest.mse).where(around).max("length")
    apart: xr.DataArray = xr.apply_ufunc(np.log, ratio)
    score, allowed = largest_score(apart, error), allowed_score(data)
    first = (rest.crossing_first_order / rest.crossing).where(np.isfinite(rest.crossing) & (rest.crossing > 1))
    close = int((abs(first - 1) < LONG).sum())
    examples = ", ".join(
        f"{float(row.sel(tilt=row.tilt[len(row.tilt) // 2])):.3g} ({name} {float(rest.law_parameter.sel(family=name)[0]):g})"
        for name in rest.family.values
        for row in [rest.crossing.sel(family=name).isel(member=0)]
    )
    return Verdict(
        "N1",
        "From which length on does the gap show, and is that length predicted?",
        "undecided" if not seen else "holds" if score <= allowed else "fails",
        f"The gap passes the noise of a finite prompt at L = {examples}, u = {float(rest.tilt[len(rest.tilt) // 2]):g}. Drawn "
        "prompts "
        f"cross in {seen} pairs within the lengths drawn, at {_range(ratio)} times the predicted length (within {score:.1f} "
        f"standard errors of the drawn curve). The first order alone is within {LONG:.0%} of the exact length in {close} of "
        f"{int(first.notnull().sum())} pairs.",
    )


def _repeated(data: xr.Dataset) -> Verdict:
    part = data.sel(dependence=_independent(data))
    score, allowed = largest_score(part.dependent_drawn - part.dependent_predicted, part.dependent_error), allowed_score(data)
    whole = part.dependent_effective % 1 == 0
    score = float((abs(part.dependent_drawn - part.dependent_predicted) / part.dependent_error).where(whole).max())
    return Verdict(
        "N1",
        "Is a prompt of tokens repeated r times worth exactly L/r independent ones, and one without correlation worth L?",
        "holds" if score <= allowed else "fails",
        f"{int(whole.sum())} mean squared errors of {', '.join(map(str, part.dependence.values))} lie within {score:.1f} "
        "standard errors "
        f"of the exact law at that length, {allowed:.1f} allowed.",
    )


def _correlated(data: xr.Dataset) -> xr.Dataset:
    return data.sel(dependence=[name for name in data.dependence.values if str(name) not in _independent(data)])


def _autocorrelated(data: xr.Dataset) -> Verdict:
    part = _correlated(data).isel(dependent_length=-1)
    ratio, error = part.dependent_drawn / part.dependent_predicted, part.dependent_error / part.dependent_predicted
    off = abs(ratio - 1) - 4 * error
    share = part.dependent_effective / part.dependent_length
    text = "; ".join(
        f"{name}: " + ", ".join(f"{float(share.sel(dependence=name, score_variance=q)):.3f}" for q in part.score_variance.values)
        for name in part.dependence.values
    )
    return Verdict(
        "N1",
        "Is a prompt of autocorrelated tokens as good as the predicted effective number of independent ones?",
        "holds" if float(off.max()) < 0.1 else "holds in part" if float(off.max()) < 0.5 else "fails",
        f"L_eff/L at L = {int(part.dependent_length)}, for σ² = "
        f"{', '.join(f'{float(q):g}' for q in part.score_variance.values)}: {text}. "
        f"Drawn errors are {_range(ratio)} (± {float(error.max()):.2f}) times the exact law at L_eff.",
    )


def _as_independent(data: xr.Dataset) -> Verdict:
    part = _correlated(data).isel(dependent_length=-1)
    base = data.dependent_predicted.sel(dependence="AR(1) 0").isel(dependent_length=-1)
    away, allowed = abs(part.dependent_drawn - base) / part.dependent_error, allowed_score(data)
    return Verdict(
        "N1",
        "Are autocorrelated tokens as good as the same number of independent ones?",
        "fails" if float(away.max()) > allowed else "holds",
        f"Their squared error is {_range(part.dependent_drawn / base)} times that of independent ones at L = "
        f"{int(part.dependent_length)}, up to {float(away.max()):.0f} standard errors off.",
        control=True,
    )


def _inputs(data: xr.Dataset) -> xr.Dataset:
    return data.sel(inputs=[name for name in data.inputs.values if name != CONTROL])


def _tube(data: xr.Dataset) -> Verdict:
    part = _inputs(data)
    sup = part.flow_distance
    falls = bool((sup.diff("flow_length") < 0).all())
    far = sup.isel(flow_length=slice(-2, None))
    slopes = [
        log_slope(far.flow_length, far.sel(inputs=name, start=start)) for name in far.inputs.values for start in far.start.values
    ]
    text = ", ".join(f"{_range(sup.sel(inputs=name).isel(flow_length=-1))} ({name})" for name in part.inputs.values)
    return Verdict(
        "C5",
        "Does training on inputs that are not Gaussian stay in a tube around the flow on the tilt limit that closes as L grows?",
        "holds" if falls and max(slopes) < -0.7 else "fails",
        f"sup ‖θ_L - θ_∞‖ up to t = {float(part.time[-1]):g} on the exact risks falls from {_range(sup.isel(flow_length=0))} "
        f"at L = {float(sup.flow_length[0]):g} to {text} at L = {float(sup.flow_length[-1]):g}, like L^{min(slopes):.2f} to "
        f"L^{max(slopes):.2f} at the end.",
    )


def _scores(data: xr.Dataset) -> tuple[float, float]:
    """Largest distance of drawn flows from exact ones at the last time (tr A/d, b) in standard errors; the largest such error."""
    end = data.isel(time=-1)
    exact = end.flow_theta.sel(flow_length=data.drawn_length.values).rename(flow_length="drawn_length")
    difference = end.trained_theta - exact.assign_coords(drawn_length=data.drawn_length)
    diagonal = [name for name in data.parameter.values if str(name) in {f"A[{i}, {i}]" for i in range(9)}]
    trace = difference.sel(parameter=diagonal).mean("parameter")
    error = np.sqrt((end.trained_error.sel(parameter=diagonal) ** 2).sum("parameter")) / math.sqrt(len(diagonal))
    parts = [(trace, error), (difference.sel(parameter="b"), end.trained_error.sel(parameter="b"))]
    size = abs(xr.concat([exact.sel(parameter=diagonal).mean("parameter"), exact.sel(parameter="b")], "which")).max("which")
    size = size.assign_coords(drawn_length=data.drawn_length)  # the larger of the two
    return max(largest_score(*part) for part in parts), max(float((own / size).max()) for _, own in parts)


def _setting(data: xr.Dataset, name: str) -> int:
    return int(json.loads(data.attrs["config"])[name])


def _trained(data: xr.Dataset) -> Verdict:
    part = _inputs(data)
    (score, error), allowed = _scores(part), allowed_score(data, _setting(data, "sets") - 1)
    exact = part.flow_distance.sel(flow_length=part.drawn_length.values).values
    ratio = part.trained_distance / exact
    return Verdict(
        "C5",
        "Do flows on drawn prompts agree with the flows on the exact risk of their length?",
        "fails" if score > allowed else "holds" if allowed * error < RESOLVED else "undecided",
        f"Mean tr A/d and b at the last time, {_setting(data, 'sets')} sets of prompts, L = {float(part.drawn_length[0]):g} to "
        f"{float(part.drawn_length[-1]):g}: within {score:.1f} standard errors, {allowed:.1f} allowed (Student's law), which "
        f"are {allowed * error:.1%} of the larger of them at most. The tube of the drawn flows is "
        f"{_range(ratio.isel(drawn_length=0))} times the predicted one at L = {float(part.drawn_length[0]):g}.",
    )


def _misled(data: xr.Dataset) -> Verdict:
    part = _inputs(data)
    level = part.level
    exact = part.flow_gauss_distance.isel(flow_length=-1)
    drawn, error = part.trained_gauss.isel(drawn_length=-1), part.trained_gauss_error.isel(drawn_length=-1)
    predicted = part.flow_gauss_distance.sel(flow_length=float(part.drawn_length[-1]))
    floor = np.sqrt((part.trained_error.isel(drawn_length=-1) ** 2).sum("parameter")).max("time")  # a norm is never below its noise
    off = float((abs(drawn - predicted) - 6 * error - floor).max())
    flat = float(abs(exact / level - 1).max())
    text = ", ".join(
        f"{name} {float(drawn.sel(inputs=name, start=start)):.3f} ± {float(error.sel(inputs=name, start=start)):.3f} "
        f"({float(level.sel(inputs=name, start=start)):.3f}, {start})"
        for name in part.inputs.values
        for start in part.start.values
    )
    bayes = json.loads(data.attrs["config"])["noise_variance"] / 2
    return Verdict(
        "C5",
        "Is the distance to the Gaussian theory's flow the predicted one, and does it level off where the two infinite "
        "prompts differ?",
        "holds" if off <= 0 and flat < 0.1 else "fails",
        f"sup distance of the flow on drawn prompts at L = {float(part.drawn_length[-1]):g} (of the two limits): {text}. At L = "
        f"{float(part.flow_length[-1]):g} it is within {flat:.1%} of the level. At the Gaussian theory's parameters the infinite "
        f"prompt has risk {_range(part.misled_risk)}, at its own flow's {_range(part.limit_risk)}; Bayes {bayes:g}.",
    )


def _gaussian_training(data: xr.Dataset) -> Verdict:
    one = data.sel(inputs=[CONTROL])
    (score, error), allowed = _scores(one), allowed_score(data, _setting(data, "sets") - 1)
    level, end = float(one.level.max()), float(one.flow_gauss_distance.isel(flow_length=-1).max())
    first = float(one.flow_gauss_distance.isel(flow_length=0).max())
    return Verdict(
        "C5",
        "Does training on Gaussian inputs give back the base theory?",
        "fails" if score > allowed or level > 1e-9 or end > first else "holds" if allowed * error < RESOLVED else "undecided",
        f"Drawn flows lie within {score:.1f} standard errors of the exact flows of LinearRegression, {allowed:.1f} allowed; "
        f"tilt limit and Gaussian theory differ by {level:.0e}; the distance to them falls from {first:.2g} to {end:.2g}.",
    )


def _follows_gaussian(data: xr.Dataset) -> Verdict:
    part = _inputs(data)
    end, own = part.flow_gauss_distance.isel(flow_length=-1), part.flow_distance.isel(flow_length=-1)
    return Verdict(
        "C5",
        "Does training on other inputs follow the Gaussian theory's flow as L grows?",
        "fails" if float((end / own).min()) > 3 else "holds",
        f"At L = {float(part.flow_length[-1]):g} it is {_range(end)} away from it, {_range(end / own)} times as far as from "
        "the tilt flow.",
        control=True,
    )
