"""What the numbers of the heavy-tail study say, each by a rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from largeprompt.runs.study import Verdict, log_slope

Array = NDArray[np.float64]
BATCHES = 40  # groups of prompts, for intervals of what is interpolated
FACTOR = 2.0  # a law breaks where E Y is this many times that of Gaussian tokens
FALSE_ALARM = 1e-6  # of all comparisons of one verdict together
FEWEST = 400  # prompts from which a breakdown is told: fewer seldom hold the rare prompts that it rests on
HEALTHY = 0.7  # k-hat above which importance sampling is not to be trusted (Vehtari et al.)


def crossing(df: Array, ratio: Array, level: float = FACTOR) -> float:
    """Largest df at which the ratio, falling to 1 as df grows, is still the level; inf or nan where it is not bracketed."""
    from scipy.interpolate import PchipInterpolator
    from scipy.optimize import brentq

    above = np.flatnonzero(ratio >= level)
    if not len(above):
        return math.nan
    if above[-1] == len(df) - 1:
        return math.inf
    curve = PchipInterpolator(np.log(df), np.log(ratio))
    return math.exp(brentq(lambda x: float(curve(x)) - math.log(level), math.log(df[above[-1]]), math.log(df[above[-1] + 1])))


def each(data: xr.Dataset, dimension: str) -> list[xr.Dataset]:
    """The slices along a dimension."""
    return [data.isel({dimension: i}) for i in range(data.sizes[dimension])]


def students(data: xr.Dataset, tilt: float) -> xr.Dataset:
    """Student-t cases at one tilt, df > 2 rising, without the Gaussian one."""
    part = data.isel(case=np.flatnonzero((data.tilt == tilt) & (data.df > 2) & np.isfinite(data.df)))
    return part.sortby("df")


def gaussian(data: xr.Dataset, tilt: float) -> xr.Dataset:
    """The case df = inf."""
    return data.isel(case=int(np.flatnonzero((data.tilt == tilt) & np.isinf(data.df))[0]))


def measured_breakdowns(data: xr.Dataset) -> xr.Dataset:
    """df at which drawn prompts break, with a jackknife standard error, and the exact one through the same interpolation."""
    tilts, lengths = data.breakdown_tilt.values, data.length.values
    found = np.full((3, len(tilts), len(lengths)), math.nan)
    rest = ~np.eye(BATCHES, dtype=bool)  # all batches but one
    for i, tilt in enumerate(tilts):
        many, one = students(data, tilt), gaussian(data, tilt)
        df = many.df.values
        exact = many.exact.sel(quantity="participation") / one.exact.sel(quantity="participation")
        for j, length in enumerate(lengths):
            y = many.batches.sel(length=length).transpose("case", "batch").values
            base = one.batches.sel(length=length).values
            without = np.array([crossing(df, y[:, keep].mean(-1) / base[keep].mean()) for keep in rest])
            if np.isfinite(without).all():
                spread = (BATCHES - 1) / BATCHES * ((without - without.mean()) ** 2).sum()
                found[:2, i, j] = crossing(df, y.mean(-1) / base.mean()), math.sqrt(spread)
            found[2, i, j] = crossing(df, exact.sel(length=length).values)
    names = ("measured_breakdown", "measured_breakdown_error", "interpolated_breakdown")
    return xr.Dataset(
        {name: (("breakdown_tilt", "length"), values) for name, values in zip(names, found, strict=True)},
        coords={"breakdown_tilt": tilts, "length": lengths},
    )


def first_length(ratio: Callable[[Sequence[int]], Array], lengths: Sequence[int], level: float = FACTOR) -> float:
    """Length from which on the ratio, a function of lengths, passes the level, to one part in a thousand; inf if it never does."""
    above = np.flatnonzero(ratio(lengths) >= level)
    if not len(above):
        return math.inf
    first = max(int(above[0]), 1)
    low, high = lengths[first - 1], lengths[first]
    while high - low > max(1, high // 1000):
        middle = (low + high) // 2
        low, high = (low, middle) if float(ratio([middle])[0]) >= level else (middle, high)
    return float(high)


def verdicts(data: xr.Dataset) -> list[Verdict]:
    """Controls, breakdown, what lies beyond it, the laws between, the tail index, and training."""
    found = [
        _samples(data),
        _gaussian_law(data),
        _breakdown(data),
        _asymptotic(data),
        _argmax(data),
        _laplace(data),
        _typical(data),
    ]
    found += [_lognormal(data), _tail_index(data), _concentration(data), _gaussian_theory(data)]
    return [*found, _descent(data), _training(data), _divergence(data)]


def allowed_score(count: int, freedom: float = math.inf) -> float:
    """Largest of so many scores that is allowed at the false-alarm level; of Student-t where the error is itself estimated."""
    from scipy.stats import t

    return float(t.isf(FALSE_ALARM / (2 * count), freedom))


def allowed_distance(variance: xr.DataArray, most: xr.DataArray, count: xr.DataArray, false_alarm: float) -> xr.DataArray:
    """Distance of a mean of ``count`` values in [0, most] from its expectation that is passed with at most this probability.

    Bernstein: P(abs(mean - E) >= d) <= 2 exp(-n d²/(2 Var + 2 most d/3)), for every n. A normal test on the sample's own standard
    error would not do: E Y can rest on rare prompts that few samples hold.
    """
    spent = math.log(2 / false_alarm) / count
    slack = most * spent / 3
    distance: xr.DataArray = slack + np.sqrt(slack**2 + 2 * variance * spent)
    return distance


def _samples(data: xr.Dataset) -> Verdict:
    count = data.sampled.size
    distance = abs(data.sampled - data.exact)
    share = distance / allowed_distance(data.variance, data.most, data.replicas, FALSE_ALARM / count)
    score = (distance / np.sqrt(data.variance / data.replicas)).sel(quantity=["participation", "largest"])
    return Verdict(
        "N3",
        "Do drawn prompts agree with the quadrature: Σ w², the largest weight, the distance to the largest token?",
        "holds" if float(share.max()) <= 1 else "fails",
        f"{count} means lie within {float(share.max()):.2f} of the distance that Bernstein's inequality allows (false alarms in "
        f"less than {FALSE_ALARM:g} of runs), Σ w² and max w within {float(score.max()):.1f} of their exact standard deviations; "
        f"the quadrature's own error is below {float(data.defect.max()):.0e}.",
    )


def _gaussian_law(data: xr.Dataset) -> Verdict:
    worst = float(data.gaussian_difference.max())
    return Verdict(
        "N3",
        "Does df = inf give back the exact law of Gaussian tokens?",
        "holds" if worst < 1e-10 else "fails",
        f"E Σ w² for L = {float(data.grid[0]):g} to {float(data.grid[-1]):.0e} differs by at most {worst:.0e}, relatively.",
    )


def _breakdown(data: xr.Dataset) -> Verdict:
    known = (data.replicas.min("case") >= FEWEST) & (data.measured_breakdown_error > 0)
    score = (abs(data.measured_breakdown - data.interpolated_breakdown) / data.measured_breakdown_error).where(known)
    count, told = int(score.notnull().sum()), []
    allowed = allowed_score(max(count, 1), BATCHES - 1)
    for tilt in data.breakdown_tilt.values:
        for length in data.length.values:
            here = data.sel(breakdown_tilt=tilt, length=length)
            if np.isfinite(score.sel(breakdown_tilt=tilt, length=length)) and length in data.grid:
                measured, wide = float(here.measured_breakdown), 2 * float(here.measured_breakdown_error)
                exact = float(data.breakdown.sel(breakdown_tilt=tilt, grid=length))
                told.append(f"{measured:.3g} ± {wide:.2g} at L = {length:g}, u = {tilt:g} (predicted {exact:.3g})")
    return Verdict(
        "N3",
        f"Below which df does a Student-t prompt have {FACTOR:g} times the Σ w² of a Gaussian one: as predicted?",
        "undecided" if not count else "holds" if float(score.max()) <= allowed else "fails",
        f"df = {'; '.join(told)}. {count} breakdowns lie within {float(score.max()):.1f} standard errors of the exact law, "
        f"{allowed:.1f} allowed.",
    )


def _asymptotic(data: xr.Dataset) -> Verdict:
    rising = data.breakdown.transpose("breakdown_tilt", "grid")
    broken = all(bool((np.diff(row[np.isfinite(row)]) > 0).all()) for row in rising.values)
    told = "; ".join(
        f"u = {float(tilt):g}: {float(row[np.isfinite(row)][0]):.3g} at L = {float(row.grid[np.isfinite(row)][0]):.0g} to "
        f"{float(row[-1]):.3g} at {float(row.grid[-1]):.0e}"
        for tilt, row in zip(data.breakdown_tilt.values, rising, strict=True)
    )
    tilt = float(data.breakdown_tilt[len(data.breakdown_tilt) // 2])
    last = data.lasting.sel(breakdown_tilt=tilt)
    lengths = ", ".join(f"{float(length):.2g} (df = {float(df):g})" for df, length in zip(last.lasting_df, last, strict=True))
    curves = data.isel(case=np.flatnonzero(np.isfinite(data.df) & (data.df > 2))).curve
    grown = curves.isel(grid=-1) > curves.min("grid")  # a law with a limit has E Σ w² fall for ever
    return Verdict(
        "N3",
        "Is there a finite df from which on prompts of every length are safe?",
        "fails" if broken else "undecided",
        f"The df that breaks grows with L ({told}); every finite df has no limit, so that as L grows the breakdown is at df = inf. "
        f"E Σ w² has turned to rise again by L = {float(data.grid[-1]):.0e} in {int(grown.sum())} of {grown.size} cases of finite "
        f"df > 2. At u = {tilt:g} prompts break from L* = {lengths} on.",
    )


def _argmax(data: xr.Dataset) -> Verdict:
    heavy = data.isel(case=np.flatnonzero(data.df <= 4))
    rate = ((1 - heavy.curve) / (1 - heavy.asymptote)).where(1 - heavy.curve > 1e-9)
    ends = [float(row[np.isfinite(row)][-1]) for row in rate.transpose("case", "grid").values]
    last = heavy.isel(length=-1, case=np.flatnonzero(heavy.df <= 2))
    middle, gap = last.of_largest.sel(level=0.5), last.sampled.sel(quantity="shortfall") / last.tilt
    holds = all(abs(end - 1) < 0.02 for end in ends) and bool((middle > 0.9).all())
    return Verdict(
        "N3",
        "Beyond the breakdown, does the layer return its largest token, and 1 - E Σ w² fall as predicted?",
        "holds" if holds else "fails",
        f"df = 4 and below: (1 - E Σ w²) over its asymptote is {min(ends):.4f} to {max(ends):.4f} at the longest prompts. "
        f"Drawn, df <= 2, L = {int(data.length[-1])}: T/max z has medians {float(middle.min()):.3f} to {float(middle.max()):.3f}, "
        f"and max z - T the means {float(gap.min()):.2g} to {float(gap.max()):.2g}.",
    )


def _laplace(data: xr.Dataset) -> Verdict:
    laws = data.isel(case=np.flatnonzero((data.law == "Laplace").values))
    told, holds = [], True
    for row in each(laws, "case"):
        tilt, alpha = float(row.tilt), math.sqrt(2) / float(row.tilt)
        curve = row.curve
        if alpha > 1:
            slope = log_slope(curve.grid[-6:], curve[-6:])
            expected = -min(1.0, alpha - 1)
            holds &= abs(slope - expected) < 0.03
            told.append(f"slope {slope:.3f} at u = {tilt:g} (predicted {expected:.3f})")
        else:
            drift = float(row.curve_mean[-1] - row.asymptote_mean[-1])
            holds &= abs(float(curve[-1]) - (1 - alpha)) < 0.01 and abs(drift) < 0.05
            level = f"{float(curve[-1]):.4f} (predicted {1 - alpha:.4f})"
            told.append(f"level {level} at u = {tilt:g}, where E T is {drift:.1e} off (ln L)/√2 + const")
    return Verdict(
        "N3",
        "Laplace: does E Σ w² fall like 1/L below u = 1/√2, like L^(1-√2/u) up to the edge √2, and stay at 1 - √2/u beyond?",
        "holds" if holds else "fails",
        f"Exact, last decades up to L = {float(data.grid[-1]):.0e}: {'; '.join(told)}.",
    )


def _typical(data: xr.Dataset) -> Verdict:
    """Median error of drawn Laplace prompts between 1/√2 and √2, against L^{-(1-1/α)}."""
    between = data.isel(case=np.flatnonzero((data.law == "Laplace").values & (data.tilt > 0.75).values & (data.tilt < 1.4).values))
    told, outcomes = [], []
    for row in each(between, "case"):
        part = row.sel(length=slice(100, None))
        error = (np.log(part.median_interval.sel(bound="upper")) - np.log(part.median_interval.sel(bound="lower"))) / (2 * 1.96)
        weights, x = 1 / error.values, np.log(part.length.values)
        (slope, _), spread = np.polyfit(x, np.log(part.error.sel(level=0.5).values), 1, w=weights, cov="unscaled")
        wide, expected = 2 * math.sqrt(spread[0, 0]), -(1 - float(row.tilt) / math.sqrt(2))
        outcomes.append(abs(slope - expected) <= wide + 0.05)
        told.append(f"{slope:.3f} ± {wide:.3f} at u = {float(row.tilt):g} (predicted {expected:.3f})")
    return Verdict(
        "N3",
        "Laplace between 1/√2 and √2: does the typical error fall like L^-(1-u/√2), within 0.05?",
        "undecided" if not outcomes else "holds" if all(outcomes) else "fails",
        f"Slope of the median error of drawn prompts from L = 100 on: {'; '.join(told) or 'no such tilt'}; "
        "the rate leaves out a factor ln L, which would make them slower.",
    )


def _lognormal(data: xr.Dataset) -> Verdict:
    laws = data.isel(case=np.flatnonzero((data.law == "lognormal").values))
    down, up = (laws.isel(case=np.flatnonzero(((laws.tilt < 0) == below).values)) for below in (True, False))
    ratio = (down.curve / down.asymptote).isel(grid=-1)
    peak = (1 / up.curve).max("grid")
    grows = bool((up.curve.isel(grid=-1) > up.curve.min("grid")).all())
    end = up.curve.isel(grid=-1)
    told = ", ".join(f"{float(p):.3g} at u = {float(u):g}" for p, u in zip(peak, up.tilt, strict=True))
    return Verdict(
        "N3",
        "Lognormal: a limit with Σ w² ~ 1/L for negative tilts, none for positive ones?",
        "holds" if grows and bool((abs(ratio - 1) < 0.01).all()) else "fails",
        f"u < 0: E Σ w² over e^(Λ(2u)-2Λ(u))/L is {float(ratio.mean()):.4f} at L = {float(data.grid[-1]):.0e}. "
        f"u > 0: however long, the prompt reads at most {told} effective tokens, and E Σ w² is {float(end.min()):.2f} to "
        f"{float(end.max()):.2f} at the end.",
    )


def _tail_index(data: xr.Dataset) -> Verdict:
    student = data.isel(case=np.flatnonzero(np.isfinite(data.df) & (data.df > 2))).sel(length=slice(100, None))
    agree, total = 0, 0
    for tilt in np.unique(student.tilt):
        base = gaussian(data, tilt).exact.sel(quantity="participation")
        part = student.isel(case=np.flatnonzero(student.tilt == tilt))
        broken = part.exact.sel(quantity="participation") / base.sel(length=part.length) >= FACTOR
        warns = part.tail_index.sel(level=0.5) > HEALTHY
        agree, total = agree + int((broken == warns).sum()), total + int(broken.size)
    ideal = data.predicted_tail_index.sel(length=slice(100, None))
    off = float((abs(data.tail_index.sel(level=0.5, length=ideal.length) - ideal) / (1 + ideal)).max())
    return Verdict(
        "N3",
        f"Does the tail index of one prompt's weights, k-hat > {HEALTHY:g}, see the breakdown?",
        "holds" if agree == total else "holds in part" if agree > total / 2 else "fails",
        f"The median k-hat of df > 2 prompts of L >= 100 agrees with the breakdown in {agree} of {total} cases. It differs "
        f"from the k-hat of the law's own quantiles, k, by at most {off:.2f} (1 + k).",
    )


def _concentration(data: xr.Dataset) -> Verdict:
    case = students(data, float(data.breakdown_tilt[len(data.breakdown_tilt) // 2])).isel(case=0)
    middle = case.error.sel(level=0.5)
    grows = float(middle[-1]) > float(middle[0])
    return Verdict(
        "N3",
        "Outside the hypothesis of C3 (sub-Gaussian tokens): does the output still approach the affine read-out?",
        "fails" if grows else "holds",
        f"df = {float(case.df):g}, u = {float(case.tilt):g}: the median distance of drawn outputs to it goes from "
        f"{float(middle[0]):.2g} at L = {int(data.length[0])} to {float(middle[-1]):.3g} at {int(data.length[-1])}.",
    )


def _gaussian_theory(data: xr.Dataset) -> Verdict:
    tilt = float(data.breakdown_tilt[len(data.breakdown_tilt) // 2])
    heavy, base = students(data, tilt).isel(case=0), gaussian(data, tilt)
    score = abs(heavy.sampled - base.exact).sel(quantity="participation") / heavy.sampled_standard_error.sel(
        quantity="participation"
    )
    return Verdict(
        "N3",
        "Does the exact law of Gaussian tokens with the same variance describe Student-t prompts?",
        "fails" if float(score.max()) > allowed_score(score.size) else "holds",
        f"df = {float(heavy.df):g}, u = {tilt:g}: it is {float(score.max()):.0f} standard errors off.",
        control=True,
    )


def _descent(data: xr.Dataset) -> Verdict:
    """Mean risk of SGD runs at df = inf against exact descent: the noise of SGD may add a little."""
    one = data.sel(training_df=math.inf)
    mean, error = float(one.run_risk.mean()), float(one.run_risk.std(ddof=1)) / math.sqrt(one.sizes["run"])
    exact = float(one.descent.sel(found="risk"))
    return Verdict(
        "N3",
        "Training with df = inf: does SGD end where exact descent on Gaussian prompts does, risk within 5 %?",
        "holds" if abs(mean / exact - 1) < 0.05 else "fails",
        f"Risk {mean:.5f} ± {2 * error:.5f} over {one.sizes['run']} runs, {exact:.5f} by descent.",
    )


def _training(data: xr.Dataset) -> Verdict:
    finite = data.sel(training_df=data.training_df > 2)
    risk = finite.run_risk.median("run")
    low, high = (finite.run_risk.quantile(level, "run") for level in (0.1, 0.9))
    told = "; ".join(
        f"df = {float(df):g}: {float(risk.sel(training_df=df)):.3f} [{float(low.sel(training_df=df)):.3f}, "
        f"{float(high.sel(training_df=df)):.3f}], descent {float(finite.descent.sel(training_df=df, found='risk')):.3f}, "
        f"least {float(finite.optimum.sel(training_df=df, found='risk')):.3f}"
        for df in finite.training_df.values
    )
    broken, error, exact = training_breakdown(finite)
    where = f"The risk of SGD is {FACTOR:g} times the Gaussian one at df = {broken:.3g} ± {2 * error:.2g} (descent: {exact:.3g}). "
    where = where if math.isfinite(error) else ""  # too few values of df to interpolate
    worst = float((risk / risk.sel(training_df=math.inf)).max())
    return Verdict(
        "N3",
        "Outside the hypothesis of C5: does training on drawn prompts reach the Gaussian risk with heavy-tailed inputs (df > 2)?",
        "fails" if worst > FACTOR else "holds",
        f"{where}Population risk at the end, median and 10 to 90 % of runs: {told}.",
    )


def training_breakdown(finite: xr.Dataset) -> tuple[float, float, float]:
    """df at which the median risk of the runs is twice the Gaussian one, its jackknife error, and the same of exact descent."""
    order = finite.isel(training_df=np.flatnonzero(np.isfinite(finite.training_df))).sortby("training_df")
    df, one = order.training_df.values, finite.sel(training_df=math.inf)
    risks, base = order.run_risk.transpose("training_df", "run").values, one.run_risk.values
    groups = np.array_split(np.arange(len(base)), 8)  # a median's jackknife needs more than one run left out
    without = np.array(
        [crossing(df, np.median(np.delete(risks, group, 1), -1) / np.median(np.delete(base, group))) for group in groups]
    )
    known = np.isfinite(without).all()
    error = math.sqrt((len(groups) - 1) / len(groups) * ((without - without.mean()) ** 2).sum()) if known else math.nan
    exact = order.descent.sel(found="risk") / one.descent.sel(found="risk")
    return crossing(df, np.median(risks, -1) / np.median(base)), error, crossing(df, exact.values)


def _divergence(data: xr.Dataset) -> Verdict:
    lost = data.diverged.astype(float).mean("run")
    middle = data.run_median.median("run")
    told = "; ".join(
        f"df = {float(df):g}: {100 * float(lost.sel(training_df=df)):.0f} % diverged, {float(middle.sel(training_df=df)):.2g}"
        for df in data.training_df.values
    )
    useless = [float(df) for df in data.training_df.values if float(middle.sel(training_df=df)) >= 1]
    return Verdict(
        "N3",
        "Does SGD learn at every df, by the median squared error on independent prompts (1: no better than saying 0)?",
        "holds" if not useless else "holds in part" if len(useless) < data.sizes["training_df"] else "fails",
        f"Runs diverged, and median over runs of that error: {told}.",
    )
