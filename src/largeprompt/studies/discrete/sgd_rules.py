"""Runs of SGD against the laws of their spread, shift and excess risk, and the authors' own
settings.
"""

import numpy as np
import xarray as xr

from largeprompt.runs.judging import (
    FALSE_ALARM,
    Answer,
    Outcome,
    allowed_score,
    compared,
    judged,
    rule,
)
from largeprompt.studies.discrete.formulas import SLOPE, most_common

SMALL_NOISE = 5e-4  # step size over batch size up to which the law's first order must hold
# share of softmax attention's variance that linear attention may have at second order
WANDERS = 0.1


def agreement(score: float, allowed: float, sharp: bool) -> Outcome:
    """'fails' beyond the allowed score; within it 'holds' if the runs are enough to rule out
    another law ('sharp').
    """
    outcome = judged(score <= allowed, rests_on=[score])
    return "undecided" if outcome == "holds" and not sharp else outcome


def spread_scores(data: xr.Dataset, factor: float = 1.0) -> tuple[xr.DataArray, float]:
    """Standard scores of the measured spreads against ``factor`` times the predicted ones where η/B
    is small, and those allowed.
    """
    small = data.batch_step_size / data.batch_size <= SMALL_NOISE * (1 + 1e-9)
    error = np.hypot(data.sgd_spread_error, factor * data.predicted_spread_error)
    score = (abs(data.sgd_spread - factor * data.predicted_spread) / error).where(small, drop=True)
    return score, allowed_score(score.size)


def weighted_line(x: np.ndarray, y: np.ndarray, error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Intercept and slope of y in x, and their standard errors; NaN where an entry is."""
    design = np.stack([np.ones_like(x), x], -1) / error[:, None]
    inverse = np.linalg.inv(design.T @ design)
    return inverse @ design.T @ (y / error), np.sqrt(np.diag(inverse))


def intercept(data: xr.Dataset) -> tuple[float, float, float, float]:
    """Spread over prediction, fitted as a + c η/B: a and its standard error (the law's own
    included), c and its.
    """
    noise, predicted = (data.batch_step_size / data.batch_size).values, data.predicted_spread.values
    (a, c), (a_error, c_error) = weighted_line(
        noise, data.sgd_spread.values / predicted, data.sgd_spread_error.values / predicted
    )
    own = float((data.predicted_spread_error / data.predicted_spread).mean())
    return float(a), float(np.hypot(a_error, own)), float(c), float(c_error)


@rule("N2", "Do runs of SGD spread around the flow as P' = -HP - PH + (η/B)C predicts?")
def spread(data: xr.Dataset) -> Answer:
    """Where η/B is small, and with enough runs to rule out a law that is twice as large."""
    score, allowed = spread_scores(data)
    worst = float(score.max())
    a, a_error, c, c_error = intercept(data)
    return (
        agreement(worst, allowed, float(spread_scores(data, 2.0)[0].max()) > allowed),
        f"For η/B <= {SMALL_NOISE:g} tr Cov lies within {worst:.1f} standard errors of the law "
        f"({score.size} settings, {allowed:.1f} allowed, false alarms in {FALSE_ALARM:g} of "
        f"runs). Over all settings measured over predicted is {a:.3f} ± {a_error:.3f} + ({c:.0f} "
        f"± {c_error:.0f}) η/B.",
        f"SGD's variance is {a:.3g} times the predicted.",
    )


def exponents(data: xr.Dataset) -> dict[str, tuple[float, float]]:
    """Exponents of the root mean squared gap in batch size and step size with their standard
    errors, the other being the same.
    """
    found = {}
    for name, other in (("batch_size", "batch_step_size"), ("batch_step_size", "batch_size")):
        part = data.isel(batch=np.flatnonzero(data[other].values == most_common(data[other])))
        ordered = part.sortby(part[name])
        noise = (ordered.batch_step_size / ordered.batch_size).values
        chosen = ordered.isel(batch=np.sort(np.argsort(noise)[:3])) if len(noise) > 2 else ordered
        gap = chosen.sgd_gap.values
        line, errors = weighted_line(
            np.log(chosen[name].values), np.log(gap), chosen.sgd_gap_error.values / gap
        )
        found[name] = float(line[1]), float(errors[1])
    return found


@rule("N2", "Is the root mean squared gap of SGD proportional to √(η/B)?")
def proportional(data: xr.Dataset) -> Answer:
    """Undecided where the exponents are not known to a tenth."""
    (size, size_error), (step, step_error) = (
        exponents(data)[name] for name in ("batch_size", "batch_step_size")
    )
    holds = abs(size + 0.5) < max(SLOPE, 3 * size_error) and abs(step - 0.5) < max(
        SLOPE, 3 * step_error
    )
    vague = max(size_error, step_error) >= SLOPE
    return (
        "undecided"
        if holds and vague
        else judged(holds, rests_on=[size, size_error, step, step_error]),
        f"Over the three least noisy settings each: exponent {size:.3f} ± {size_error:.3f} in B "
        f"and {step:.3f} ± {step_error:.3f} in η.",
    )


@rule("N2", "Would half the batch size explain the spread as well?", control=True)
def wrong_batch(data: xr.Dataset) -> Answer:
    """Fails where twice the predicted spread is too much."""
    score, allowed = spread_scores(data, 2.0)
    worst = float(score.max())
    return (
        judged(worst <= allowed, rests_on=[worst]),
        f"The spread is then off by up to {worst:.1f} standard errors, {allowed:.1f} allowed.",
    )


@rule(
    "N2",
    "Does the mean of the runs leave the flow, and their risk exceed it, as the curvature of the "
    "risk predicts?",
)
def shift(data: xr.Dataset) -> Answer:
    """Undecided where no predicted shift is four standard errors large."""
    small = data.batch_step_size / data.batch_size <= 4 * SMALL_NOISE
    moved = (abs(data.sgd_shift - data.predicted_shift) / data.sgd_shift_error).where(
        small, drop=True
    )
    risk = (abs(data.sgd_excess - data.predicted_excess) / data.sgd_excess_error).where(
        small, drop=True
    )
    allowed, score = allowed_score(2 * moved.size), float(max(moved.max(), risk.max()))
    seen = data.isel(
        batch=int(np.nanargmax((data.predicted_shift / data.sgd_shift_error).where(small).values))
    )
    return (
        agreement(score, allowed, float(seen.predicted_shift / seen.sgd_shift_error) > 4),
        f"At η = {seen.batch_step_size:g}, B = {int(seen.batch_size)} the mean is moved by "
        f"{seen.sgd_shift:.4f} ± {seen.sgd_shift_error:.4f} along the predicted "
        f"{seen.predicted_shift:.4f}, and the risk is higher by {seen.sgd_excess:.2e} ± "
        f"{seen.sgd_excess_error:.0e} (predicted {seen.predicted_excess:.2e}); all such settings "
        f"within {score:.1f} standard errors, {allowed:.1f} allowed. Balanced by descent the "
        f"excess would be {data.stationary_excess:.2f} η/B, and it is {data.final_excess:.2f} η/B "
        "at the last time.",
    )


def cases_of(data: xr.Dataset, kind: str) -> xr.Dataset:
    """The cases of one attention."""
    return data.sel(
        wander_case=[str(case) for case in data.wander_case.values if str(case).startswith(kind)]
    )


@rule("N2", "Does softmax SGD wander along the slow direction, in ‖V‖² - ‖U‖², as predicted?")
def wander(data: xr.Dataset) -> Answer:
    """Halfway and at the end, with enough runs to rule out a free walk."""
    part = cases_of(data, "softmax")
    late, end = (
        part.isel(wander_time=[part.sizes["wander_time"] // 2, -1]),
        part.isel(wander_time=-1),
    )
    score, allowed = compared(late.wander, late.predicted_wander, late.wander_error)
    sharp = compared(late.wander, late.free_wander, late.wander_error)[0] > allowed
    text = "; ".join(
        f"{case}: {one.wander:.3g} ± {one.wander_error:.1g}, predicted {one.predicted_wander:.3g}, "
        f"free walk {one.free_wander:.3g}"
        for case, one in ((str(c), end.sel(wander_case=c)) for c in part.wander_case.values)
    )
    return (
        agreement(score, allowed, sharp),
        f"Variance between runs at t = {data.wander_time[-1]:g}: {text}. Within {score:.1f} "
        f"standard errors, {allowed:.1f} allowed.",
    )


@rule(
    "N2",
    "Does linear attention, whose every prompt keeps the symmetry U → cU, V → V/c, not wander "
    "there at all?",
)
def symmetry(data: xr.Dataset) -> Answer:
    """Undecided unless both attentions are among the cases."""
    last = {
        kind: cases_of(data, kind).wander.isel(wander_time=-1).values
        for kind in ("linear", "softmax")
    }
    ratio = (
        float(last["linear"][0] / last["softmax"][0])
        if all(len(values) for values in last.values())
        else np.nan
    )
    return (
        judged(ratio < WANDERS, rests_on=[ratio]),
        f"Its variance is {ratio:.1e} of softmax attention's: to first order none, as each drawn "
        "gradient is orthogonal to the "
        "flat direction; what is left is of second order in the step size.",
    )


@rule(
    "N2",
    "At the authors' settings (P1: step 1e-3, batch 128), is SGD as near to the flow as the law "
    "says?",
)
def authors(data: xr.Dataset) -> Answer:
    """With enough runs to rule out a spread that is twice as large."""
    end, last, allowed = data.isel(paper_step=-1), data.isel(paper_time=-1), allowed_score()
    score, double = (
        float(abs(end.paper_spread - factor * end.paper_predicted) / end.paper_spread_error)
        for factor in (1, 2)
    )
    relative = float(abs(data.paper_excess / data.paper_risk).max())
    between = float((data.paper_deviation / data.paper_risk).max())
    return (
        agreement(score, allowed, double > allowed),
        f"After {round(float(end.paper_step) / 1e-3):,} steps the spread between runs is "
        f"{float(end.paper_spread) ** 0.5:.4f} (root mean square), predicted "
        f"{float(end.paper_predicted) ** 0.5:.4f}, {score:.1f} standard errors apart. By the law "
        f"a run ends at t = {last.paper_time:g} at {last.paper_law:.4f} ± "
        f"{last.paper_law_error:.4f} from the flow, of ‖θ‖ = {last.paper_size:.2f}; along the way "
        f"the mean risk differs from the flow's by at most {relative:.1e} of it, that of single "
        f"runs by {between:.1e}.",
    )


RULES = (spread, proportional, wrong_batch, shift, wander, symmetry)
