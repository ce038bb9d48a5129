"""What is asked of heavy tails (N3), for outputs and for training."""

import math

import numpy as np
import xarray as xr

from largeprompt.runs.judging import FALSE_ALARM, Finding, at, judged, log_slope, rule
from largeprompt.studies.heavytail.parts import FACTOR


def middle_tilt(data: xr.Dataset) -> float:
    """The tilt that stands for all where one is shown."""
    return float(data.breakdown_tilt[data.sizes["breakdown_tilt"] // 2])


def cases(data: xr.Dataset, chosen: xr.DataArray) -> xr.Dataset:
    """The cases that are chosen."""
    return data.isel(case=np.flatnonzero(chosen.values))


@rule(
    "N3",
    "Is there a finite df at which prompts of every length are safe?",
    fails="A hope of ours. The paper's hypothesis, sub-Gaussian tokens, is needed.",
)
def safe(data: xr.Dataset) -> Finding:
    """Fails where the df that breaks grows with L all along."""
    tilt = middle_tilt(data)
    rising = [row[np.isfinite(row)] for row in data.breakdown.values]
    broken = all(len(row) > 1 and bool((np.diff(row) > 0).all()) for row in rising)
    lasting = data.lasting.sel(breakdown_tilt=tilt)
    return Finding(
        judged(False, rests_on=[lasting, data.breakdown.isel(grid=-1)]) if broken else "undecided",
        otherwise="However light the Student-t tails, from some length a prompt is read through a "
        "few tokens only.",
        numbers={
            f"at tilt {tilt:g} df = {float(lasting.lasting_df[k]):g} breaks from": (
                lasting[k],
                "tokens",
            )
            for k in (0, -1)
        },
    )


@rule("N3", "Do drawn prompts agree with the exact Σ w²?")
def samples(data: xr.Dataset) -> Finding:
    """By Bernstein's inequality with the exact variance: Σ w² can rest on rare prompts."""
    distance, count = abs(data.sampled - data.exact), data.sampled.size
    spent = math.log(2 * count / FALSE_ALARM) / data.replicas
    allowed = spent / 3 + np.sqrt(spent**2 / 9 + 2 * data.variance * spent)
    share = float((distance / allowed).max())
    return Finding(
        judged(share <= 1, rests_on=[share]),
        numbers={"means": count, "largest share of the distance that chance allows": share},
    )


@rule("N3", "Beyond the breakdown, does the layer return its largest token?")
def argmax(data: xr.Dataset) -> Finding:
    """1 - E Σ w² meets its asymptote for df up to 4; drawn outputs are the largest token."""
    heavy = cases(data, data.df <= 4)
    rate = ((1 - heavy.curve) / (1 - heavy.asymptote)).where(1 - heavy.curve > 1e-9)
    ends = [float(row[np.isfinite(row)][-1]) for row in rate.values]
    middle = cases(heavy, heavy.df <= 2).of_largest.isel(length=-1)
    good = all(abs(end - 1) < 0.02 for end in ends) and bool((middle > 0.9).all())
    return Finding(
        judged(good, rests_on=[ends, middle]),
        numbers={
            "1 - E Σ w² over its asymptote at the longest prompts": ends,
            "median of output over largest token, df up to 2": middle,
        },
    )


@rule("N3", "Laplace: does E Σ w² fall as predicted up to the edge √2, and stay beyond it?")
def laplace(data: xr.Dataset) -> Finding:
    """Like 1/L below u = 1/√2, like L^(1-√2/u) to the edge (to 0.03), at 1 - √2/u (to 0.01)."""
    part = cases(data, data.law == "Laplace")
    inside, beyond = (cases(part, (part.tilt < math.sqrt(2)) == below) for below in (True, False))
    slopes = np.array([log_slope(row.grid[-6:], row[-6:]) for row in inside.curve])
    expected = -np.minimum(1.0, math.sqrt(2) / inside.tilt.values - 1)
    levels, known = beyond.curve.isel(grid=-1).values, beyond.asymptote.isel(grid=-1).values
    good = (abs(slopes - expected) < 0.03).all() and (abs(levels - known) < 0.01).all()
    return Finding(
        judged(bool(good), rests_on=[slopes, levels]),
        numbers={
            "exponents in L": slopes,
            "predicted": expected,
            "levels beyond the edge": levels,
            "predicted there": known,
        },
    )


@rule(
    "N3",
    "Does training on heavy-tailed inputs (df > 2) reach the Gaussian risk?",
    fails="An extension of the paper beyond its hypothesis.",
)
def training(data: xr.Dataset) -> Finding:
    """Fails where the median risk over runs of SGD is twice the Gaussian one."""
    finite = data.isel(training_df=np.flatnonzero(data.training_df > 2)).sortby("training_df")
    risk, descent = finite.run_risk.median("run"), finite.descent_risk
    base = at(risk, training_df=math.inf)
    worst = float((risk / base).max())
    ratio = (descent / at(descent, training_df=math.inf)).values
    lost = data.diverged.where(data.training_df <= 2, drop=True)
    return Finding(
        judged(not worst > FACTOR, rests_on=[worst, ratio]),
        otherwise="Training breaks too: with heavier tails the risk grows, and without a variance "
        "SGD diverges.",
        numbers={
            "median risk of SGD, df = inf": base,
            "at the least df above 2": risk[0],
            "least risk there": finite.least_risk[0],
            "share of runs that diverge, df up to 2": lost.mean() if lost.size else "not run",
        },
    )


@rule("N3", "Do Gaussian tokens of the same variance describe Student-t prompts?", control=True)
def gaussian_theory(data: xr.Dataset) -> Finding:
    """Fails where the heaviest tails have more than twice the Σ w², and outputs move away."""
    part = cases(data, data.tilt == middle_tilt(data))
    student = cases(part, (part.df > 2) & np.isfinite(part.df)).sortby("df").isel(case=0)
    normal = cases(part, np.isinf(part.df)).isel(case=0)
    ratio = float((student.sampled / normal.exact).isel(length=-1))
    return Finding(
        judged(not ratio > FACTOR, rests_on=[ratio]),
        numbers={
            "df": student.df,
            "drawn Σ w² over the Gaussian one at the longest prompts": ratio,
        },
    )


RULES = (safe, training, samples, argmax, laplace, gaussian_theory)
