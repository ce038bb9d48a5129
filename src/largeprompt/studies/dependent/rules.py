"""What the data says of dependent tokens: rates, mixing, correlation, training, and the limit."""

import numpy as np
import xarray as xr

from largeprompt.runs.judging import Finding, at, judged, log_slope, rule
from largeprompt.studies.lengths import drawn_agrees, least_likely

CLOSE = 0.05  # relative: what counts as having reached a predicted limit


@rule("Q3", "Do paths of a Markov chain converge to the discrete tilt at the predicted rate C/L?")
def rate(data: xr.Dataset) -> Finding:
    """Holds where the exact error at the longest prompt is C/L to 5 %."""
    ratio = data.exact * data.length / data.constant
    last = ratio.isel(length=-1)
    return Finding(
        judged(float(abs(last - 1).max()) < CLOSE, rests_on=[last]),
        f"Markov prompts converge at the predicted rate (ratio {float(last.median()):.2f}).",
        "Markov prompts do not converge at the predicted rate.",
        {
            f"error over C/L at L = {int(data.length[-1]):,}": last,
            f"at L = {int(data.length[0])}": ratio.isel(length=0),
        },
    )


@rule("Q3", "Would independent symbols of the same frequencies have the same limit?", control=True)
def memoryless(data: xr.Dataset) -> Finding:
    """Fails where they end further away than the chain."""
    last = data.isel(length=-1)
    ratio = last.memoryless / last.exact
    return Finding(
        judged(float(ratio.max()) < 2, rests_on=[ratio]),
        numbers={f"their squared error over the chain's at L = {int(last.length):,}": ratio},
    )


@rule("Q3", "Does slow mixing cost what is predicted, and nothing where the head is the n-gram?")
def mixing(data: xr.Dataset) -> Finding:
    """Holds where exact errors are as predicted to 5 %, and at β = 30 as for independent tokens."""
    ratio = data.mixing_exact / data.mixing_constant
    price = data.mixing_constant / data.mixing_independent
    slow, gap = price.isel(holding=-1), abs(float(data.mixing_ngram_ratio) - 1)
    off = float(abs(ratio - 1).max())
    return Finding(
        judged(off < CLOSE and gap < 1e-6, rests_on=[off, gap]),
        f"Slow mixing raises the error up to {float(slow.max()):.3g} times; the empirical n-gram "
        "is not affected.",
        "Slow mixing does not cost what is predicted.",
        {
            "price of the slowest chain, over β": slow,
            "largest deviation from the prediction": off,
            "relative price at β = 30": gap,
        },
    )


@rule("Q3", "Does training sharpen the head like ½ ln t, up to the predicted β*(L) at length L?")
def training(data: xr.Dataset) -> Finding:
    """Holds where β ends within 0.01 of its law, and the best β within 0.15 of the prediction."""
    late = data.sel(time=slice(float(data.time[-1]) / 100, None))
    slope = float(np.polyfit(np.log(late.time), late.beta_infinite, 1)[0])
    off = float(abs(late.beta_infinite - late.beta_infinite_predicted)[-1])
    last = data.isel(training_length=-1)
    best, predicted = float(last.best_beta_exact), float(last.best_beta_predicted)
    good = off < 0.01 and abs(best - predicted) < 0.15
    return Finding(
        judged(good, rests_on=[off, best, predicted]),
        f"Training sharpens the head like ½ ln t, and at length L stops at ln(1 + L/a*), "
        f"a* = {float(data.pseudo_count):.2g}.",
        "Training does not sharpen the head as predicted.",
        {
            "dβ/d ln t of infinite prompts": slope,
            f"best β at L = {int(last.training_length):,}": best,
            "predicted": predicted,
        },
    )


@rule("Q3", "Does the trained head beat the empirical n-gram at every length?")
def beats(data: xr.Dataset) -> Finding:
    """Holds where the best β has the lower exact risk at every length."""
    share = 100 * data.saved_exact / data.ngram_risk_exact
    return Finding(
        judged(bool((share > 0).all()), rests_on=[share]),
        "The trained head beats the empirical n-gram at every length.",
        "The trained head does not always beat the empirical n-gram.",
        {
            f"risk saved at L = {int(data.training_length[0])}": (share[0], "%"),
            f"at L = {int(data.training_length[-1]):,}": (share[-1], "%"),
        },
    )


@rule(
    "C5", "Do flows of β at length L close on the infinite-prompt flow like 1/L on bounded times?"
)
def tube(data: xr.Dataset) -> Finding:
    """Holds where the slope of the largest distance in L is -1 to 0.1 over the last lengths."""
    early = data.sel(time=slice(0, float(data.tube_until)))
    lengths = data.training_length
    apart = abs(early.beta_exact - early.beta_infinite).max("time")
    slope = log_slope(lengths[-3:], apart[-3:])
    return Finding(
        judged(abs(slope + 1) < 0.1, rests_on=[slope]),
        "Trained on Markov prompts too, finite and infinite flows close like 1/L on bounded times.",
        "Flows on Markov prompts do not close like 1/L.",
        {f"largest distance up to t = {float(data.tube_until):g}": apart, "slope in L": slope},
    )


@rule(
    "Q3",
    "Does the limit stay affine in the query, as for Gaussian tokens?",
    fails="The paper's Gaussian picture, not claimed for discrete tokens: the limit mixes "
    "skip-grams instead.",
)
def affine(data: xr.Dataset) -> Finding:
    """Fails where the gap to the affine read-out is more than rounding."""
    gap = data.affine_gap
    first, last = gap.isel(operator_beta=0), gap.isel(operator_beta=-1)
    return Finding(
        judged(float(gap.max()) < 1e-12, rests_on=[gap]),
        "The limit is affine.",
        "The limit is not affine: it mixes skip-gram predictors.",
        {
            f"distance to the affine read-out at β = {data.operator_beta[0]:g}": first,
            f"at β = {data.operator_beta[-1]:g}": last,
        },
    )


@rule("N1", "Are autocorrelated tokens worth the predicted number of independent ones?")
def autocorrelated(data: xr.Dataset) -> Finding:
    """Holds where drawn errors are within 10 % and 4 standard errors, in part within 50 %."""
    drawn, spread = data.correlated_drawn, data.correlated_error
    ratio, error = (each / data.correlated_predicted for each in (drawn, spread))
    off = float((abs(ratio - 1) - 4 * error).max())
    share = data.effective / data.correlated_length
    strongest = at(share, correlation=float(data.correlation.max()))
    return Finding(
        judged(off < 0.1, in_part=off < 0.5, rests_on=[off]),
        f"Tokens with correlation {float(strongest.correlation):g} are worth "
        f"{100 * float(strongest.min()):.2g} % of their number, as predicted.",
        "Autocorrelated tokens are not worth the predicted number of independent ones.",
        {
            "effective share of the tokens": share,
            "drawn over predicted error": ratio,
            "standard error": error.max(),
        },
    )


@rule("N1", "Are autocorrelated tokens worth as many independent ones?", control=True)
def as_independent(data: xr.Dataset) -> Finding:
    """Fails where a drawn error is beyond chance from that of independent tokens."""
    ratio = data.correlated_drawn / data.correlated_independent
    alone = data.correlated_independent.broadcast_like(data.correlated_drawn)
    chance = least_likely(data.correlated_drawn, alone, data.correlated_error)
    return Finding(
        judged(chance > 1e-6, rests_on=[chance]),
        numbers={"their squared error over that of independent tokens": ratio},
    )


drawn = drawn_agrees(
    "Q3",
    "Do drawn paths agree with the exact law?",
    headline="Drawn Markov paths agree with the exact law.",
    otherwise="Drawn Markov paths disagree with the exact law.",
)
RULES = (
    rate,
    mixing,
    affine,
    training,
    beats,
    tube,
    autocorrelated,
    drawn,
    memoryless,
    as_independent,
)
