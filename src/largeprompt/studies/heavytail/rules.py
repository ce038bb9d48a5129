"""What the exact laws and drawn prompts say: controls, the breakdown, what lies beyond it, the laws
between, the tail index.
"""

import math

import numpy as np
import xarray as xr

from largeprompt.runs.judging import (
    FALSE_ALARM,
    Answer,
    NotInRunError,
    allowed_score,
    compared,
    judged,
    log_slope,
    rule,
    span,
)
from largeprompt.studies.heavytail import training_rules
from largeprompt.studies.heavytail.formulas import (
    BATCHES,
    FACTOR,
    FEWEST,
    gaussian,
    middle_tilt,
    students,
)

HEALTHY = 0.7  # k-hat above which importance sampling is not to be trusted (Vehtari et al.)


def cases(data: xr.Dataset, law: str) -> xr.Dataset:
    """The cases of one law."""
    return data.isel(case=np.flatnonzero((data.law == law).values))


def each_case(data: xr.Dataset) -> list[xr.Dataset]:
    """The cases one by one."""
    return [data.isel(case=i) for i in range(data.sizes["case"])]


def allowed_distance(
    variance: xr.DataArray, most: xr.DataArray, count: xr.DataArray, false_alarm: float
) -> xr.DataArray:
    """Distance of a mean of ``count`` values in [0, most] from its expectation that is passed with
    at most this probability.

    Bernstein: P(abs(mean - E) >= d) <= 2 exp(-n d²/(2 Var + 2 most d/3)), for every n. A normal
    test on the sample's own standard error would not do: E Y can rest on rare prompts that few
    samples hold.
    """
    spent = math.log(2 / false_alarm) / count
    slack = most * spent / 3
    distance: xr.DataArray = slack + np.sqrt(slack**2 + 2 * variance * spent)
    return distance


@rule(
    "N3",
    "Do drawn prompts agree with the quadrature: Σ w², the largest weight, the distance to the "
    "largest token?",
)
def samples(data: xr.Dataset) -> Answer:
    """By Bernstein's inequality."""
    count = data.sampled.size
    distance = abs(data.sampled - data.exact)
    share = float(
        (
            distance
            / allowed_distance(data.variance, data.most, data.replicas, FALSE_ALARM / count)
        ).max()
    )
    score = (distance / np.sqrt(data.variance / data.replicas)).sel(
        quantity=["participation", "largest"]
    )
    return (
        judged(share <= 1, rests_on=[share]),
        f"{count} means lie within {share:.2f} of the distance that Bernstein's inequality allows "
        f"(false alarms in less than {FALSE_ALARM:g} of runs), Σ w² and max w within "
        f"{score.max():.1f} of their exact standard deviations; the quadrature's own error is "
        f"below {data.defect.max():.0e}.",
    )


@rule(
    "N3",
    "Where there is a limit, does the exact law by the cgf give the same E Σ w² as the density "
    "does?",
)
def routes(data: xr.Dataset) -> Answer:
    """Two quadratures, of which one knows the cgf and the other the density."""
    known = data.isel(case=np.flatnonzero(data.route_difference.notnull()))
    names = ", ".join(
        f"{name} at u = {tilt:g}" for name, tilt in zip(known.law.values, known.tilt, strict=True)
    )
    worst = float(known.route_difference.max())
    return (
        judged(worst < 1e-10, rests_on=[worst]),
        f"{names}: they differ by at most {worst:.0e}, relatively, for L = {data.length[0]:g} to "
        f"{data.length[-1]:g}.",
    )


@rule(
    "N3",
    f"Below which df does a Student-t prompt have {FACTOR:g} times the Σ w² of a Gaussian one: as "
    "predicted?",
)
def breakdown(data: xr.Dataset) -> Answer:
    """Undecided where no length has prompts enough."""
    known = (data.replicas.min("case") >= FEWEST) & (data.measured_breakdown_error > 0)
    score = (
        abs(data.measured_breakdown - data.interpolated_breakdown) / data.measured_breakdown_error
    ).where(known)
    count, worst, texts = int(score.notnull().sum()), float(score.max()), []
    allowed = allowed_score(count, degrees=BATCHES - 1)
    for tilt in data.breakdown_tilt.values:
        for length in data.length.values:
            here = data.sel(breakdown_tilt=tilt, length=length)
            if np.isfinite(score.sel(breakdown_tilt=tilt, length=length)) and length in data.grid:
                measured, wide = (
                    float(here.measured_breakdown),
                    2 * float(here.measured_breakdown_error),
                )
                exact = float(data.breakdown.sel(breakdown_tilt=tilt, grid=length))
                texts.append(
                    f"{measured:.3g} ± {wide:.2g} at L = {length:g}, u = {tilt:g} (predicted "
                    f"{exact:.3g})"
                )
    return (
        judged(worst <= allowed, rests_on=[worst]),
        f"df = {'; '.join(texts)}. {count} breakdowns lie within {worst:.1f} standard errors of "
        f"the exact law, {allowed:.1f} allowed.",
    )


@rule(
    "N3",
    "Is there a finite df from which on prompts of every length are safe?",
    fails="A hope of ours: every Student-t law breaks at some length. The paper's hypothesis, "
    "sub-Gaussian tokens, is needed.",
)
def asymptotic(data: xr.Dataset) -> Answer:
    """Fails where the df that breaks grows with L all along."""
    rising = data.breakdown.transpose("breakdown_tilt", "grid")
    broken = all(bool((np.diff(row[np.isfinite(row)]) > 0).all()) for row in rising.values)
    rows = "; ".join(
        f"u = {tilt:g}: {row[np.isfinite(row)][0]:.3g} at L = {row.grid[np.isfinite(row)][0]:.0g} "
        f"to {row[-1]:.3g} at {row.grid[-1]:.0e}"
        for tilt, row in zip(data.breakdown_tilt.values, rising, strict=True)
    )
    tilt = middle_tilt(data)
    last = data.lasting.sel(breakdown_tilt=tilt)
    lengths = ", ".join(
        f"{length:.2g} (df = {df:g})" for df, length in zip(last.lasting_df, last, strict=True)
    )
    curves = data.isel(case=np.flatnonzero(np.isfinite(data.df) & (data.df > 2))).curve
    grown = curves.isel(grid=-1) > curves.min("grid")  # a law with a limit has E Σ w² fall for ever
    return (
        judged(False, rests_on=[rising.isel(grid=-1), last]) if broken else "undecided",
        f"The df that breaks grows with L ({rows}); every finite df has no limit, so that as L "
        "grows the breakdown is at df = inf. E Σ w² has turned to rise again by L = "
        f"{data.grid[-1]:.0e} in {int(grown.sum())} of {grown.size} cases of finite df > 2. At u "
        f"= {tilt:g} prompts break from L* = {lengths} on.",
        f"Student-t prompts break from {last[0]:.3g} tokens on (df = {last.lasting_df[0]:g}), "
        f"from {last[-1]:.3g} tokens on (df = {last.lasting_df[-1]:g}).",
    )


@rule(
    "N3",
    "Beyond the breakdown, does the layer return its largest token, and 1 - E Σ w² fall as "
    "predicted?",
)
def argmax(data: xr.Dataset) -> Answer:
    """Exact for df up to 4, drawn for df up to 2."""
    heavy = data.isel(case=np.flatnonzero(data.df <= 4))
    rate = ((1 - heavy.curve) / (1 - heavy.asymptote)).where(1 - heavy.curve > 1e-9)
    ends = [float(row[np.isfinite(row)][-1]) for row in rate.transpose("case", "grid").values]
    last = heavy.isel(length=-1, case=np.flatnonzero(heavy.df <= 2))
    middle, gap = last.of_largest.sel(level=0.5), last.sampled.sel(quantity="shortfall") / last.tilt
    holds = all(abs(end - 1) < 0.02 for end in ends) and bool((middle > 0.9).all())
    return (
        judged(holds, rests_on=[ends, middle, gap]),
        f"df = 4 and below: (1 - E Σ w²) over its asymptote is {span(ends, '.4f')} at the longest "
        "prompts. Drawn, df <= 2, L = "
        f"{int(data.length[-1])}: T/max z has medians {span(middle, '.3f')}, and max z - T the "
        f"means {span(gap)}.",
    )


@rule(
    "N3",
    "Laplace: does E Σ w² fall like 1/L below u = 1/√2, like L^(1-√2/u) up to the edge √2, and "
    "stay at 1 - √2/u beyond?",
)
def laplace(data: xr.Dataset) -> Answer:
    """Slopes to 0.03, levels to 0.01, and the mean output beyond the edge to 0.05."""
    texts, errors = [], []  # errors in units of what is allowed
    for row in each_case(cases(data, "Laplace")):
        tilt, alpha, curve = float(row.tilt), math.sqrt(2) / float(row.tilt), row.curve
        if alpha > 1:
            slope, expected = log_slope(curve.grid[-6:], curve[-6:]), -min(1.0, alpha - 1)
            errors.append(abs(slope - expected) / 0.03)
            texts.append(f"slope {slope:.3f} at u = {tilt:g} (predicted {expected:.3f})")
        else:
            level, drift = float(curve[-1]), float(row.curve_mean[-1] - row.asymptote_mean[-1])
            errors += [abs(level - (1 - alpha)) / 0.01, abs(drift) / 0.05]
            words = f"{level:.4f} (predicted {1 - alpha:.4f})"
            texts.append(
                f"level {words} at u = {tilt:g}, where E T is {drift:.1e} off (ln L)/√2 + const"
            )
    return (
        judged(max(errors) < 1, rests_on=[errors]),
        f"Exact, last decades up to L = {data.grid[-1]:.0e}: {'; '.join(texts)}.",
    )


@rule(
    "N3",
    "Laplace between 1/√2 and √2: does the typical error fall like L^-(1-u/√2), within 0.05?",
    fails="Our conjecture at these lengths: the rate leaves out a logarithm, and errors fall more "
    "slowly.",
)
def typical(data: xr.Dataset) -> Answer:
    """Median error of drawn prompts; undecided where no tilt is between."""
    texts, excesses = [], []  # of the error in the slope over its interval
    for row in each_case(cases(data, "Laplace")):
        if not 0.75 < float(row.tilt) < 1.4:
            continue
        part = row.sel(length=slice(100, None))
        if part.sizes["length"] < 2:
            raise NotInRunError("needs two lengths from 100 on")
        error = (
            np.log(part.median_interval.sel(bound="upper"))
            - np.log(part.median_interval.sel(bound="lower"))
        ) / (2 * 1.96)
        x, y = np.log(part.length.values), np.log(part.error.sel(level=0.5).values)
        (slope, _), spread = np.polyfit(x, y, 1, w=1 / error.values, cov="unscaled")
        wide, expected = 2 * math.sqrt(spread[0, 0]), -(1 - float(row.tilt) / math.sqrt(2))
        excesses.append(abs(slope - expected) - wide)
        texts.append(f"{slope:.3f} ± {wide:.3f} at u = {row.tilt:g} (predicted {expected:.3f})")
    return (
        judged(max(excesses) <= 0.05, rests_on=[excesses]) if excesses else "undecided",
        "Slope of the median error of drawn prompts from L = 100 on: "
        f"{'; '.join(texts) or 'no such tilt'}; "
        "the rate leaves out a factor ln L, which would make them slower.",
    )


@rule("N3", "Lognormal: a limit with Σ w² ~ 1/L for negative tilts, none for positive ones?")
def lognormal(data: xr.Dataset) -> Answer:
    """Undecided unless there are tilts of both signs."""
    laws = cases(data, "lognormal")
    down, up = (
        laws.isel(case=np.flatnonzero(((laws.tilt < 0) == below).values)) for below in (True, False)
    )
    if not down.sizes["case"] or not up.sizes["case"]:
        return "undecided", f"{down.sizes['case']} negative and {up.sizes['case']} positive tilts."
    ratio, end = (down.curve / down.asymptote).isel(grid=-1), up.curve.isel(grid=-1)
    peaks = ", ".join(
        f"{p:.3g} at u = {u:g}" for p, u in zip((1 / up.curve).max("grid"), up.tilt, strict=True)
    )
    grows = bool((end > up.curve.min("grid")).all())
    return (
        judged(grows and bool((abs(ratio - 1) < 0.01).all()), rests_on=[ratio, end]),
        f"u < 0: E Σ w² over e^(Λ(2u)-2Λ(u))/L is {ratio.mean():.4f} at L = {data.grid[-1]:.0e}. "
        f"u > 0: however long, the prompt reads at most {peaks} effective tokens, and E Σ w² is "
        f"{span(end, '.2f')} at the end.",
    )


@rule("N3", f"Does the tail index of one prompt's weights, k-hat > {HEALTHY:g}, see the breakdown?")
def tail_index(data: xr.Dataset) -> Answer:
    """Holds where it does in all cases, in part in most."""
    student = data.isel(case=np.flatnonzero(np.isfinite(data.df) & (data.df > 2))).sel(
        length=slice(100, None)
    )
    agree, total = 0, 0
    for tilt in np.unique(student.tilt):
        base = gaussian(data, tilt).exact.sel(quantity="participation")
        part = student.isel(case=np.flatnonzero(student.tilt == tilt))
        broken = part.exact.sel(quantity="participation") / base.sel(length=part.length) >= FACTOR
        warns = part.tail_index.sel(level=0.5) > HEALTHY
        agree, total = agree + int((broken == warns).sum()), total + int(broken.size)
    ideal = data.predicted_tail_index.sel(length=slice(100, None))
    off = float(
        (abs(data.tail_index.sel(level=0.5, length=ideal.length) - ideal) / (1 + ideal)).max()
    )
    return (
        judged(agree == total, in_part=agree > total / 2, rests_on=[off]) if total else "undecided",
        f"The median k-hat of df > 2 prompts of L >= 100 agrees with the breakdown in {agree} of "
        f"{total} cases. It differs "
        f"from the k-hat of the law's own quantiles, k, by at most {off:.2f} (1 + k).",
    )


@rule(
    "N3",
    "Outside the hypothesis of C3 (sub-Gaussian tokens): does the output still approach the affine "
    "read-out?",
    fails="An extension of the paper beyond its hypothesis, which is therefore needed; the paper "
    "stands.",
)
def concentration(data: xr.Dataset) -> Answer:
    """Fails where the median distance grows with L."""
    case = students(data, middle_tilt(data)).isel(case=0)
    first, last = (float(case.error.sel(level=0.5)[i]) for i in (0, -1))
    return (
        judged(not last > first, rests_on=[first, last]),
        f"df = {case.df:g}, u = {case.tilt:g}: the median distance of drawn outputs to it goes "
        f"from {first:.2g} at L = {int(data.length[0])} to {last:.3g} at {int(data.length[-1])}.",
    )


@rule(
    "N3",
    "Does the exact law of Gaussian tokens with the same variance describe Student-t prompts?",
    control=True,
)
def gaussian_theory(data: xr.Dataset) -> Answer:
    """Fails for the heaviest tails."""
    tilt = middle_tilt(data)
    heavy = students(data, tilt).isel(case=0).sel(quantity="participation")
    exact = gaussian(data, tilt).exact.sel(quantity="participation")
    worst, allowed = compared(heavy.sampled, exact, heavy.sampled_standard_error)
    return (
        judged(not worst > allowed, rests_on=[worst]),
        f"df = {heavy.df:g}, u = {tilt:g}: it is {worst:.0f} standard errors off.",
    )


LIMITS = (samples, routes, breakdown, asymptotic, argmax, laplace, typical, lognormal, tail_index)
RULES = (*LIMITS, concentration, gaussian_theory, *training_rules.RULES)
