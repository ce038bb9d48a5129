"""What the study `discrete` says, by rule."""

from __future__ import annotations

import numpy as np
import xarray as xr

from largeprompt.runs.study import Outcome, Verdict, log_slope

COEFFICIENT = 0.02  # relative error of a predicted coefficient, as the step size tends to 0, that counts as agreement
SLOPE = 0.1  # error of a measured exponent that does
STABLE = 2e-3  # relative error of a predicted largest stable step that does
HOVERS = 0.02  # relative difference of the mean sharpness from 2/η that does
FALSE_ALARM = 1e-6  # of a run, over all comparisons of one verdict
SMALL_NOISE = 5e-4  # step size over batch size up to which the law's first order is taken at its word
SMALL_ADAM = 5e-6  # step size of Adam from which on its distance to the sign flow may be extrapolated
WANDERS = 0.1  # share of softmax attention's variance that linear attention may have at second order
FAR = 0.1  # relative distance of two end points that are not the same


def verdicts(data: xr.Dataset) -> list[Verdict]:
    """Descent, stability, SGD, Adam, and the authors' settings."""
    return [
        _first_order(data),
        _second_order(data),
        _bowl(data),
        _same_at_infinity(data),
        _stable(data),
        _beyond(data),
        _edge(data),
        _spread(data),
        _exponents(data),
        _wrong_batch(data),
        _shift(data),
        _wander(data),
        _symmetry(data),
        _sign(data),
        _memory(data),
        _adam_end(data),
        _arrival(data),
        _authors(data),
    ]


def _names(values: xr.DataArray) -> str:
    return ", ".join("∞" if np.isinf(x) else f"{x:g}" for x in values.values)


def at_zero(x: xr.DataArray, ratio: xr.DataArray) -> xr.DataArray:
    """Ratios extrapolated to step size 0 from the two smallest ones, where it is linear in the step size."""
    ordered = ratio.sortby(x.name)
    first, second = (float(value) for value in np.sort(x.values)[:2])
    return ordered[..., 0] + (ordered[..., 0] - ordered[..., 1]) * first / (second - first)


def _first_order(data: xr.Dataset) -> Verdict:
    ratio = data.gap / (data.predicted_gap * data.step_size)
    limit = at_zero(data.step_size, ratio)
    wrong = float(abs(limit - 1).max())
    smallest = data.gap.sortby("step_size")[..., :4]
    slopes = [log_slope(smallest.step_size, smallest.sel(attention=a, length=x)) for a in data.attention for x in data.length]
    holds = wrong < COEFFICIENT and max(abs(slope - 1) for slope in slopes) < SLOPE
    softmax = data.sel(attention="softmax")
    last = float(data.step_size.max())
    return Verdict(
        "N2",
        "Is gradient descent's largest distance to the flow the predicted coefficient times the step size?",
        "holds" if holds else "fails",
        f"sup‖θ_GD - θ_flow‖/η predicted {', '.join(f'{float(x):.4f}' for x in softmax.predicted_gap)} (softmax, "
        f"L = {_names(data.length)}); measured over predicted, both attentions, tends to 1 within {wrong:.1e} as η → 0, with slope "
        f"{min(slopes):.3f} to {max(slopes):.3f} over the smallest four η; at η = {last:g} the law is low by a factor up to "
        f"{float(ratio.sel(step_size=last).max()):.2f}.",
    )


def _second_order(data: xr.Dataset) -> Verdict:
    slopes = [
        log_slope(data.modified_step_size, data.modified_gap.sel(attention=a, length=x))
        for a in data.attention
        for x in data.length
    ]
    constant = (data.modified_gap / data.modified_step_size**2).sel(modified_step_size=float(data.modified_step_size.min()))
    return Verdict(
        "N2",
        "Does descent follow the flow of R + (η/4)‖∇R‖² to second order?",
        "holds" if max(abs(slope - 2) for slope in slopes) < 2 * SLOPE else "fails",
        f"The distance to that flow has slope {min(slopes):.3f} to {max(slopes):.3f} in η, and is {float(constant.min()):.3f} to "
        f"{float(constant.max()):.3f} times η² at the smallest.",
    )


def _bowl(data: xr.Dataset) -> Verdict:
    flow, gap, run = (float(data[f"bowl_{name}_error"]) for name in ("flow", "gap", "descent"))
    return Verdict(
        "N2",
        "Control: with the scores frozen the risk is a bowl; does the library give back its closed forms?",
        "holds" if max(flow, run) < 1e-6 and gap < 1e-4 else "fails",
        f"Flow to {flow:.0e}, descent to {run:.0e}, first-order gap to {gap:.0e} of its largest value.",
    )


def _same_at_infinity(data: xr.Dataset) -> Verdict:
    limit = data.isel(length=np.flatnonzero(np.isinf(data.length.values)))
    apart = (
        float(abs(limit.gap.sel(attention="softmax") - limit.gap.sel(attention="linear")).max())
        if limit.sizes["length"]
        else np.nan
    )
    return Verdict(
        "N2",
        "Control: do softmax and linear attention descend alike at L = ∞?",
        "holds" if apart < 1e-8 else "fails",
        f"Their gaps differ by at most {apart:.0e}.",
    )


def _stable(data: xr.Dataset) -> Verdict:
    wrong = abs(data.measured_stable_step / data.stable_step - 1)
    worst = float(wrong.max(skipna=False))
    pairs = ", ".join(
        f"{float(a):.4f} against {float(b):.4f}" for a, b in zip(data.measured_stable_step, data.stable_step, strict=True)
    )
    return Verdict(
        "N2",
        "Is the largest step at which descent returns to its end point 2 over the largest Hessian eigenvalue there?",
        "holds" if worst < STABLE else "fails",
        f"Measured against predicted at L = {_names(data.length)}: {pairs}; largest relative "
        f"difference {worst:.0e}, resolution {float((data.stable_step_error / data.stable_step).max()):.0e}.",
    )


def _beyond(data: xr.Dataset) -> Verdict:
    least = float(data.growth_beyond.min())
    return Verdict(
        "N2",
        "Does descent with a step one per cent above that return to its end point?",
        "fails" if least > 10 else "holds",
        f"A deviation of 1e-6 grows {least:.3g} times or more in 200 steps.",
        control=True,
    )


def _edge(data: xr.Dataset) -> Verdict:
    end = 2 / data.stable_step
    limit = 2 / data.large_step
    stayed = data.large_sharpness.notnull()
    below = stayed & (limit > 1.01 * end)
    beyond = stayed & (limit < 0.99 * end)
    reached = float(abs(data.large_sharpness / end - 1).where(below).max())
    above = abs(data.large_sharpness / limit - 1).where(beyond & (data.large_step < 1.5 * data.stable_step)).max("multiple")
    excess, finite = float(above.max()), np.flatnonzero(np.isfinite(data.length.values))
    longest = data.isel(length=int(finite[-1]))
    path = data.stable_step / data.path_stable_step
    worst = int(np.argmax(path.values))
    held = (longest.large_sharpness * longest.large_step / 2 - 1).where(longest.large_step > 1.05 * longest.stable_step)
    held = abs(held.where(longest.large_step < 2.5 * longest.stable_step))
    return Verdict(
        "N2",
        "From the start, do steps above 2/λ_max of the end point stop where the sharpness is 2/η?",
        "holds" if excess < HOVERS else "holds in part" if float(above[int(finite[-1])]) < HOVERS else "fails",
        f"Steps below it end within {reached:.1%} of the flow's own sharpness; steps up to 1.5 times it end with a mean sharpness "
        f"within {', '.join(f'{float(x):.1%}' for x in above)} of 2/η (L = {_names(data.length)}), on flatter and, at "
        f"finite L, worse layers. At L = {float(longest.length):g} it stays "
        f"within {float(held.max()):.1%} of 2/η for steps from 1.05 to 2.5 times it. Along the flow the sharpness exceeds its end "
        f"value by up to a factor {float(path[worst]):.2f} (L = {_names(data.length[worst : worst + 1])}).",
    )


def _scores(data: xr.Dataset, factor: float = 1.0) -> tuple[xr.DataArray, float]:
    """Standard scores of the measured spreads against ``factor`` times the predicted ones where η/B is small, and those allowed."""
    from scipy.stats import norm

    small = data.batch_step_size / data.batch_size <= SMALL_NOISE * (1 + 1e-9)
    error = np.hypot(data.sgd_spread_error, factor * data.predicted_spread_error)
    score = (abs(data.sgd_spread - factor * data.predicted_spread) / error).where(small, drop=True)
    return score, float(norm.isf(FALSE_ALARM / (2 * score.size)))


def intercept(data: xr.Dataset) -> tuple[float, float, float, float]:
    """Spread over prediction, fitted as a + c η/B: a and its standard error (the law's own included), c and its."""
    x = (data.batch_step_size / data.batch_size).values
    y, error = (data.sgd_spread / data.predicted_spread).values, (data.sgd_spread_error / data.predicted_spread).values
    design = np.stack([np.ones_like(x), x], -1) / error[:, None]
    inverse = np.linalg.inv(design.T @ design)
    a, c = inverse @ design.T @ (y / error)
    own = float((data.predicted_spread_error / data.predicted_spread).mean())
    return float(a), float(np.hypot(np.sqrt(inverse[0, 0]), own)), float(c), float(np.sqrt(inverse[1, 1]))


def _spread(data: xr.Dataset) -> Verdict:
    score, allowed = _scores(data)
    sharp = float(_scores(data, 2.0)[0].max()) > allowed  # enough runs to tell the law from one that is twice as large
    a, a_error, c, c_error = intercept(data)
    return Verdict(
        "N2",
        "Do runs of SGD spread around the flow as P' = -HP - PH + (η/B)C predicts?",
        "fails" if float(score.max()) > allowed else "holds" if sharp else "undecided",
        f"For η/B <= {SMALL_NOISE:g} tr Cov lies within {float(score.max()):.1f} standard errors of the law ({score.size} "
        f"settings, {allowed:.1f} allowed, false alarms in {FALSE_ALARM:g} of runs). Over all settings measured over predicted is "
        f"{a:.3f} ± {a_error:.3f} + ({c:.0f} ± {c_error:.0f}) η/B.",
    )


def fitted_exponent(x: xr.DataArray, y: xr.DataArray, error: xr.DataArray) -> tuple[float, float]:
    """Slope of log y in log x with its standard error, weighted."""
    weight = (y / error).values
    design = np.stack([np.ones(len(x)), np.log(x.values)], -1) * weight[:, None]
    inverse = np.linalg.inv(design.T @ design)
    return float((inverse @ design.T @ (np.log(y.values) * weight))[1]), float(np.sqrt(inverse[1, 1]))


def exponents(data: xr.Dataset) -> dict[str, tuple[float, float]]:
    """Exponents of the root mean squared gap in batch size and step size, each along the settings that share the other."""
    found = {}
    for name, other in (("batch_size", "batch_step_size"), ("batch_step_size", "batch_size")):
        values, counts = np.unique(data[other].values, return_counts=True)
        part = data.isel(batch=np.flatnonzero(data[other].values == values[counts.argmax()]))
        ordered = part.sortby(part[name])
        noise = (ordered.batch_step_size / ordered.batch_size).values
        chosen = ordered.isel(batch=np.sort(np.argsort(noise)[:3])) if len(noise) > 2 else ordered
        found[name] = fitted_exponent(chosen[name], chosen.sgd_gap, chosen.sgd_gap_error)
    return found


def _exponents(data: xr.Dataset) -> Verdict:
    (size, size_error), (step, step_error) = (exponents(data)[name] for name in ("batch_size", "batch_step_size"))
    holds = abs(size + 0.5) < max(SLOPE, 3 * size_error) and abs(step - 0.5) < max(SLOPE, 3 * step_error)
    precise = max(size_error, step_error) < SLOPE
    return Verdict(
        "N2",
        "Is the root mean squared gap of SGD proportional to √(η/B)?",
        ("holds" if precise else "undecided") if holds else "fails",
        f"Over the three least noisy settings each: exponent {size:.3f} ± {size_error:.3f} in B and {step:.3f} ± "
        f"{step_error:.3f} in η.",
    )


def _wrong_batch(data: xr.Dataset) -> Verdict:
    score, allowed = _scores(data, 2.0)
    return Verdict(
        "N2",
        "Would half the batch size explain the spread as well?",
        "holds" if float(score.max()) <= allowed else "fails",
        f"The spread is then off by up to {float(score.max()):.1f} standard errors, {allowed:.1f} allowed.",
        control=True,
    )


def _shift(data: xr.Dataset) -> Verdict:
    from scipy.stats import norm

    small = data.batch_step_size / data.batch_size <= 4 * SMALL_NOISE
    moved = (abs(data.sgd_shift - data.predicted_shift) / data.sgd_shift_error).where(small, drop=True)
    risk = (abs(data.sgd_excess - data.predicted_excess) / data.sgd_excess_error).where(small, drop=True)
    allowed = float(norm.isf(FALSE_ALARM / (4 * moved.size)))
    seen = data.isel(batch=int(np.nanargmax((data.predicted_shift / data.sgd_shift_error).where(small).values)))
    pull = float(seen.predicted_shift / seen.sgd_shift_error)
    score = float(max(moved.max(), risk.max()))
    return Verdict(
        "N2",
        "Does the mean of the runs leave the flow, and their risk exceed it, as the curvature of the risk predicts?",
        "fails" if score > allowed else "holds" if pull > 4 else "undecided",
        f"At η = {float(seen.batch_step_size):g}, B = {int(seen.batch_size)} the mean is moved by {float(seen.sgd_shift):.4f} ± "
        f"{float(seen.sgd_shift_error):.4f} along the predicted {float(seen.predicted_shift):.4f}, and the risk is higher by "
        f"{float(seen.sgd_excess):.2e} ± {float(seen.sgd_excess_error):.0e} (predicted {float(seen.predicted_excess):.2e}); "
        f"all such settings within {score:.1f} standard errors, {allowed:.1f} allowed. Balanced by descent the excess would be "
        f"{float(data.stationary_excess):.2f} η/B, and it is {float(data.final_excess):.2f} η/B at the last time.",
    )


def _wander(data: xr.Dataset) -> Verdict:
    from scipy.stats import norm

    part = data.sel(wander_case=[str(case) for case in data.wander_case.values if str(case).startswith("softmax")])
    late = part.isel(wander_time=[part.sizes["wander_time"] // 2, -1])
    score = float((abs(late.wander - late.predicted_wander) / late.wander_error).max())
    allowed = float(norm.isf(FALSE_ALARM / (2 * late.wander.size)))
    sharp = float((abs(late.wander - late.free_wander) / late.wander_error).max()) > allowed  # told from a free walk
    end = part.isel(wander_time=-1)
    text = "; ".join(
        f"{case}: {float(one.wander):.3g} ± {float(one.wander_error):.1g}, predicted {float(one.predicted_wander):.3g}, "
        f"free walk {float(one.free_wander):.3g}"
        for case, one in ((str(c), end.sel(wander_case=c)) for c in part.wander_case.values)
    )
    return Verdict(
        "N2",
        "Does softmax SGD wander along the slow direction, in ‖V‖² - ‖U‖², as predicted?",
        "fails" if score > allowed else "holds" if sharp else "undecided",
        f"Variance between runs at t = {float(data.wander_time[-1]):g}: {text}. Within {score:.1f} standard errors, "
        f"{allowed:.1f} allowed.",
    )


def _symmetry(data: xr.Dataset) -> Verdict:
    def last(kind: str) -> float:
        cases = [str(case) for case in data.wander_case.values if str(case).startswith(kind)]
        return float(data.wander.sel(wander_case=cases[0]).isel(wander_time=-1)) if cases else np.nan

    ratio = last("linear") / last("softmax")
    return Verdict(
        "N2",
        "Does linear attention, whose every prompt keeps the symmetry U → cU, V → V/c, not wander there at all?",
        "holds" if ratio < WANDERS else "fails",
        f"Its variance is {ratio:.1e} of softmax attention's: to first order none, as each drawn gradient is orthogonal to the "
        "flat direction; what is left is of second order in the step size.",
    )


def _sign(data: xr.Dataset) -> Verdict:
    ratio = data.early_sign_gap / data.predicted_sign_gap
    limit = float(at_zero(data.sign_step_size, ratio))
    slope = log_slope(data.sign_step_size, data.early_sign_gap)
    smallest = float(data.sign_step_size.min())
    outcome: Outcome = "holds" if abs(limit - 1) < 5 * COEFFICIENT else "fails"
    return Verdict(
        "N2",
        "As its step tends to 0, does Adam follow the sign flow, at a distance of 990 η |log of the gradient's change|?",
        outcome if smallest <= SMALL_ADAM else "undecided",
        f"Before the first change of sign, measured over predicted is {float(ratio.sel(sign_step_size=smallest)):.3f} at η = "
        f"{smallest:g} and {limit:.3f} extrapolated to 0; slope {slope:.2f}. The memory of √v, 1000 steps, sets the scale.",
    )


def usual(data: xr.Dataset) -> float:
    """The step size nearest to PyTorch's default, 1e-3."""
    steps = data.adam_step_size.values
    return float(steps[np.argmin(np.abs(steps - 1e-3))])


def _memory(data: xr.Dataset) -> Verdict:
    sup = data.memory_gap
    slopes = [log_slope(data.adam_step_size, sup.sel(adam_length=x)) for x in data.adam_length]
    common = usual(data)
    near, far = (float(data[name].sel(adam_step_size=common).max()) for name in ("memory_gap", "sign_gap"))
    holds = near < 0.02 * far and min(slopes) > 1 - SLOPE
    return Verdict(
        "N2",
        "At usual step sizes, does Adam follow its own flow with memory?",
        "holds" if holds else "fails",
        f"Up to t = {float(data.adam_time[-1]):g} at η = {common:g} it stays within {near:.1e} of it (sign flow: {far:.2g}); the "
        f"distance has slope {min(slopes):.2f} to {max(slopes):.2f} in η (L = {_names(data.adam_length)}).",
    )


def _adam_end(data: xr.Dataset) -> Verdict:
    limit = data.isel(adam_length=np.flatnonzero(np.isinf(data.adam_length.values)))
    if not limit.sizes["adam_length"]:
        return Verdict(
            "N2", "Does Adam end where the flow ends at L = ∞?", "undecided", "0 infinite lengths among the settings.", control=True
        )
    one = limit.isel(adam_length=0)
    common = usual(data)
    adam, memory = (float(one[f"{name}_gauge"].sel(adam_step_size=common)) for name in ("adam", "memory"))
    b = float(one.adam_b.sel(adam_step_size=common).isel(adam_time=-1))
    outcome: Outcome = "fails" if abs(adam - float(one.flow_gauge)) > FAR else "holds"
    return Verdict(
        "N2",
        "Does Adam end where the flow ends on the line of solutions at L = ∞?",
        outcome,
        f"b = {b:.4f} and b² - ‖A‖² = {adam:.3f} at η = {common:g} (predicted {memory:.3f}; sign flow {float(one.sign_gauge):.3f}) "
        f"against {float(one.flow_b):.4f} and {float(one.flow_gauge):.1e}, which the flow conserves.",
        control=True,
    )


def _arrival(data: xr.Dataset) -> Verdict:
    wrong = float(abs(data.arrival_steps / data.predicted_arrival - 1).max(skipna=False))
    text = "; ".join(
        f"{float(s):.0f} (predicted {float(p):.0f}; flow: time {float(f):.3g}) at L = {float(x):g}"
        for s, p, f, x in zip(data.arrival_steps, data.predicted_arrival, data.flow_arrival, data.arrival_length, strict=True)
    )
    return Verdict(
        "N2",
        "After how many steps has Adam crossed the slow drift to the optimum of its length, and does its flow say so?",
        "holds" if wrong < COEFFICIENT else "fails",
        f"Steps until b is within 1 % for good: {text}.",
    )


def _authors(data: xr.Dataset) -> Verdict:
    from scipy.stats import norm

    end = data.isel(paper_step=-1)
    score = float(abs(end.paper_spread - end.paper_predicted) / end.paper_spread_error)
    allowed = float(norm.isf(FALSE_ALARM / 2))
    sharp = float(abs(end.paper_spread - 2 * end.paper_predicted) / end.paper_spread_error) > allowed  # told from twice as much
    last = data.isel(paper_time=-1)
    relative = float(abs(data.paper_excess / data.paper_risk).max())
    between = float((data.paper_deviation / data.paper_risk).max())
    return Verdict(
        "N2",
        "At the authors' settings (P1: step 1e-3, batch 128), is SGD as near to the flow as the law says?",
        "fails" if score > allowed else "holds" if sharp else "undecided",
        f"After {round(float(end.paper_step) / 1e-3):,} steps the spread between runs is {float(end.paper_spread) ** 0.5:.4f} "
        f"(root mean square), predicted {float(end.paper_predicted) ** 0.5:.4f}, {score:.1f} standard errors apart. By the law a "
        f"run ends at t = {float(last.paper_time):g} at {float(last.paper_law):.4f} ± {float(last.paper_law_error):.4f} from the "
        f"flow, of ‖θ‖ = {float(last.paper_size):.2f}; along the way the mean risk differs from the flow's by at most "
        f"{relative:.1e} of it, that of single runs by {between:.1e}.",
    )
