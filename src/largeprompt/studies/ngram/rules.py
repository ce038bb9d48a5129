"""What the data of the study ``ngram`` says: rules that turn its dataset into verdicts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr

from largeprompt.runs.study import Outcome, Verdict, log_slope

PROMISED = 1e-6  # rate of false alarms of a verdict, all of its comparisons together
NOMINAL = 1e-9  # used for squared errors, whose skewness costs some of it
ROUNDING = 1e-12


def scores(drawn: xr.DataArray, predicted: xr.DataArray, error: xr.DataArray) -> tuple[float, str, bool]:
    """Largest distance in standard errors where a prediction is known, in words with what is allowed, and whether it is."""
    from scipy.stats import norm

    score = (abs(drawn - predicted) / error).values
    score = score[~np.isnan(score)]
    worst, allowed = float(score.max()), float(norm.isf(NOMINAL / (2 * len(score))))
    return worst, f"{worst:.1f} standard errors at most in {len(score)} comparisons (allowed {allowed:.1f})", worst < allowed


def combined(gain: xr.DataArray, error: xr.DataArray) -> tuple[float, float]:
    """Standard errors that a gain needs to be real at the promised rate, and the least that all lengths of a law together have."""
    from scipy.stats import norm

    weights = 1 / error**2
    together = (gain * weights).sum("risk_length") / weights.sum("risk_length") ** 0.5
    return float(norm.isf(PROMISED / gain.size)), float(together.min())


def span(values: Any, form: str = ".2f") -> str:
    """'a to b' of the finite values, 'a' where that says it all."""
    finite = np.asarray(values, dtype=np.float64)
    finite = finite[np.isfinite(finite)]
    ends = [f"{each:{form}}" for each in (finite.min(), finite.max())] if len(finite) else ["nan"]
    return " to ".join(dict.fromkeys(ends))


def several(values: Any, form: str = ".2f") -> str:
    """'a, b, c'."""
    return ", ".join(f"{float(each):{form}}" for each in values)


def held(good: bool) -> Outcome:
    """'holds' or 'fails'."""
    return "holds" if good else "fails"


def verdicts(data: xr.Dataset) -> list[Verdict]:
    """Convergence, exact law, mixing, controls, training, n-gram predictor, and the operator."""
    found = [_constant(data), _exact(data), _mixing(data), _immune(data), _shuffled(data), _base(data)]
    return [*found, _growth(data), _optimum(data), _tube(data), _distance(data), _beats(data), _affine(data), _mixture(data)]


def _constant(data: xr.Dataset) -> Verdict:
    _, text, good = scores(data.extrapolated, data.constant, data.extrapolated_standard_error)
    ratio, error = data.extrapolated / data.constant, data.extrapolated_standard_error / data.constant
    mean, spread = float((ratio / error**2).sum() / (1 / error**2).sum()), float((1 / error**2).sum()) ** -0.5
    lengths, errors = data.length.values, data.mse.transpose(*data.shortest.dims, "length").values.reshape(-1, data.sizes["length"])
    long = [(lengths >= shortest, one) for shortest, one in zip(data.shortest.values.ravel(), errors, strict=True)]
    slopes = [log_slope(lengths[used], one[used]) for used, one in long if used.sum() >= 3]
    return Verdict(
        "Q3",
        "Do dependent tokens converge to the discrete tilt limit like C/L, with C from the chain's fundamental matrix?",
        held(good),
        f"Extrapolated L·E‖T_L - T‖² over predicted C: {mean:.4f} ± {spread:.4f} on average over chains, β and queries; {text}. "
        f"Fitted slopes in L: {span(slopes)}. C is {span(data.constant / data.independent_constant)} times that of independent "
        "tokens.",
    )


def _exact(data: xr.Dataset) -> Verdict:
    _, text, good = scores(data.mse, data.exact, data.mse_standard_error)
    short = data.exact.isel(length=0) * data.length[0] / data.constant
    return Verdict(
        "Q3",
        "Is the exact law of a finite path (transfer matrices) right at every length?",
        held(good),
        f"Drawn paths of L = {int(data.length[0])} to {int(data.length[-1])} are off by {text}. "
        f"At L = {int(data.length[0])} the exact law is {span(short)} times C/L.",
    )


def _mixing(data: xr.Dataset) -> Verdict:
    _, text, good = scores(data.mixing_drawn, data.mixing_exact, data.mixing_standard_error)
    ratio = data.mixing_constant / data.mixing_independent
    fast, slow = ratio.isel(holding=0), ratio.isel(holding=-1)
    return Verdict(
        "Q3",
        "Does the rate depend on the mixing time as predicted?",
        held(good and bool((slow > fast).all())),
        f"C over that of independent tokens for β = {several(data.mixing_beta.values, 'g')}: {several(fast)} at relaxation time "
        f"{float(data.mixing_time[0]):.3g}, {several(slow)} at {float(data.mixing_time[-1]):.3g}. Drawn paths at the longest "
        "length are "
        f"off the exact law by {text}.",
    )


def _immune(data: xr.Dataset) -> Verdict:
    gap = abs(float(data.mixing_ngram_ratio) - 1)
    return Verdict(
        "Q3",
        "Does the price of slow mixing vanish as β grows, where attention becomes the empirical n-gram?",
        held(gap < 1e-6),
        f"At β = 30 the slowest chain's C differs from that of independent tokens by a relative {gap:.0e}: "
        "what follows a context is a martingale difference, whatever the mixing.",
    )


def _shuffled(data: xr.Dataset) -> Verdict:
    predicted, last = data.control_exact.sel(source="chain"), data.isel(length=-1)
    score, _, good = scores(data.shuffled_mse, predicted, data.shuffled_standard_error)
    found, error = float(last.shuffled_mse), float(last.shuffled_standard_error)
    return Verdict(
        "Q3",
        "Does the prediction fit the same symbols shuffled in time?",
        held(good),
        f"At L = {int(last.length)} their squared distance to the limit is {found:.3g} ± {error:.1g}, up to {score:.0f} standard "
        "errors "
        f"from the prediction ({float(predicted[-1]):.2g} there): they converge to the unigram, {float(data.shuffled_level):.3g} "
        "away.",
        control=True,
    )


def _base(data: xr.Dataset) -> Verdict:
    part = data.sel(source=[name for name in data.source.values if name != "chain"])
    _, first, good = scores(part.control_extrapolated, part.control_constant, part.control_extrapolated_standard_error)
    _, every, fits = scores(part.control_mse, part.control_exact, part.control_mse_standard_error)
    gap = float(data.independent_symbols_gap)
    return Verdict(
        "Q3",
        "Do independent tokens, independent symbols and Gaussian tokens give back the base theory in the same code?",
        held(good and fits and gap < ROUNDING),
        f"C of overlapping windows of independent symbols equals the first order for independent tokens to {gap:.0e}. "
        f"Drawn against C: {first}; against the exact laws: {every}.",
    )


def _growth(data: xr.Dataset) -> Verdict:
    late = data.sel(time=slice(float(data.time[-1]) / 100, None))
    slope = [float(np.polyfit(np.log(late.time), path, 1)[0]) for path in late.beta_infinite.transpose("training_order", "time")]
    off = float(abs(late.beta_infinite - late.beta_infinite_predicted).isel(time=-1).max())
    return Verdict(
        "Q3",
        "On infinite prompts, does the trained β grow without bound, like ½ ln(2At)?",
        held(off < 0.01 and all(abs(each - 0.5) < 0.01 for each in slope)),
        f"dβ/d ln t = {several(slope, '.4f')} over the last two decades (orders {several(data.training_order.values, 'g')}); "
        f"at t = {float(data.time[-1]):.0e} β is within {off:.1g} of the law.",
    )


def _optimum(data: xr.Dataset) -> Verdict:
    first, last = data.sel(training_order=1), data.isel(training_length=-1)
    _, text, good = scores(first.best_beta, first.best_beta_exact, first.best_beta_standard_error)
    _, _, near = scores(last.best_beta, last.best_beta_predicted, last.best_beta_standard_error)
    before, exact = abs(first.best_beta_exact - first.best_beta_predicted).values[-2:]
    step = np.diff(first.best_beta_exact.values[-2:]) / np.diff(np.log(first.training_length.values[-2:]))
    return Verdict(
        "Q3",
        "At finite L, does training stop at a finite β*(L) = ln(1 + L/a*)?",
        held(good and near and exact < min(0.15, 0.6 * before)),
        f"At L = {int(last.training_length)}, order 1, the exact risk has its minimum at β = "
        f"{float(first.best_beta_exact[-1]):.4f}, predicted "
        f"{float(first.best_beta_predicted[-1]):.4f} with a* = {float(first.pseudo_count):.2f}; dβ*/d ln L = "
        f"{float(step[0]):.3f} at the end. "
        f"Drawn prompts (orders {several(data.training_order.values, 'g')}): {several(last.best_beta)} ± "
        f"{several(last.best_beta_standard_error)}, predicted {several(last.best_beta_predicted)}; against the exact minimum: "
        f"{text}.",
    )


def _tube(data: xr.Dataset) -> Verdict:
    from scipy.stats import t

    early = data.sel(training_order=1).sel(time=slice(0, float(data.tube_until)))
    sup, lengths = abs(early.beta_exact - early.beta_infinite).max("time"), data.training_length
    ratio = float((sup / abs(early.first_order_shift).max("time") * lengths)[-1])
    slope = log_slope(lengths[-3:], sup[-3:])
    score = abs(early.beta_drawn - early.beta_exact) / early.beta_drawn_standard_error.where(early.time > 0)
    apart, allowed = float(score.max()), float(t.isf(PROMISED / (2 * score.size), int(data.batches) - 1))
    return Verdict(
        "C5",
        "Do flows of β at length L stay in a tube around the infinite-prompt flow that closes like 1/L on bounded times?",
        held(abs(ratio - 1) < 0.05 and abs(slope + 1) < 0.1 and apart <= allowed),
        f"sup |β_L - β_∞| for t <= {float(data.tube_until):g} on the exact risks falls from {float(sup[0]):.2g} (L = "
        f"{int(lengths[0])}) to "
        f"{float(sup[-1]):.2g} (L = {int(lengths[-1])}), slope {slope:.2f}, {ratio:.3f} times the first order at the end; drawn "
        f"prompts are {apart:.1f} standard errors from it at most ({allowed:.1f} allowed). For all times it does not hold: "
        f"β_∞ passes β*(L) after a time of order L², {float(data.crossover.sel(training_order=1)[-1]):.0e} at the longest.",
    )


def _distance(data: xr.Dataset) -> Verdict:
    last = data.isel(risk_length=-1)
    off = float(abs(last.tv_drawn / last.tv - 1).where(last.risk_beta > 0).max())
    far = float(abs((data.row_distance / data.row_leading).isel(operator_beta=-1) - 1).max())
    closed = float(data.closed_form_error)
    return Verdict(
        "Q3",
        "Does attention approach the in-context empirical n-gram like e^-β, as the limit says?",
        held(off < 0.1 and far < 0.01 and closed < ROUNDING),
        f"Limit: ‖T - P(q,·)‖ = ‖p - P(q,·)‖/(1 + (e^β - 1)π_q) at order 1 to {closed:.0e}; at β = "
        f"{float(data.operator_beta[-1]):g} its "
        f"leading constant times e^-β is right to {far:.0e} for all orders. Drawn at L = {int(last.risk_length)}: the total "
        "variation "
        f"between head and n-gram is within {100 * off:.1f} % of the limit's for every β up to {float(last.risk_beta[-1]):g}.",
    )


def _beats(data: xr.Dataset) -> Verdict:
    part, first = data.sel(predictor="attention"), data.sel(training_order=1)
    score = float((part.saved / part.saved_standard_error).min())
    ratio, error = part.saved / part.saved_predicted, part.saved_standard_error / part.saved_predicted
    needed, together = combined(ratio, error)
    outcome: Outcome = "undecided"
    if score < -needed:
        outcome = "fails"
    elif bool((first.saved_exact > 0).all()) and together > needed:
        outcome = "holds" if score > needed else "holds in part"
    share = data.saved.sel(predictor="posterior mean") / part.saved
    relative = 100 * part.saved / data.predictor_risk.sel(predictor="n-gram")
    exact = float((first.saved_exact / first.saved_exact_predicted)[-1])
    return Verdict(
        "Q3",
        "Does attention at the β that was predicted to be best beat the unsmoothed empirical n-gram?",
        outcome,
        f"It saves {span(relative[:, 0], '.0f')} % of the n-gram's excess squared risk at L = {int(data.risk_length[0])} and "
        f"{span(relative[:, -1])} % at {int(data.risk_length[-1])} ({score:.1f} standard errors or more at each length and "
        "concentration, "
        f"{together:.0f} or more for the lengths of one concentration together). At the longest, over the predicted B²/(2AL²): "
        f"{several(ratio[:, -1])} ± {several(error[:, -1])} (concentrations {several(data.concentration.values, 'g')}), and "
        f"{exact:.3f} on "
        f"the exact risk of the training chains. The posterior mean saves {several(share[:, -1])} times as much.",
    )


def _affine(data: xr.Dataset) -> Verdict:
    _, text, good = scores(data.affine_mse, data.affine_exact, data.affine_standard_error)
    far = data.isel(operator_beta=-1)
    slope = [log_slope(data.operator_beta[:2], gap[:2]) for gap in data.affine_gap.transpose("case", "operator_beta")]
    outcome: Outcome = "holds" if float(data.affine_gap.max()) < ROUNDING else ("fails" if good else "undecided")
    return Verdict(
        "Q3",
        "Does the limit stay a linear operator, the affine read-out of the prompt's mean and covariance?",
        outcome,
        f"The gap between limit and affine read-out is β^{span(slope)} at small β and {span(far.affine_gap, '.2g')} at "
        f"β = {float(far.operator_beta):g}, where {span(100 * far.affine_outside, '.0f')} % of the queries are sent out of the "
        "simplex; its "
        f"best multiple still misses {span(100 * far.best_scaled_gap / far.unigram_distance, '.0f')} % of ‖p - P(q,·)‖. Drawn "
        "paths stop at a "
        f"squared distance of {float(data.affine_mse[-1]):.4g} (predicted level {float(data.affine_level):.4g}), off the exact "
        f"law by {text}.",
    )


def _mixture(data: xr.Dataset) -> Verdict:
    worst = float(data.identity_error.max())
    return Verdict(
        "Q3",
        "Is the limit, instead, the mixture Σ_S (e^β - 1)^|S| π(q_S) P(· | q_S) of skip-grams, at order one a gate between row "
        "and unigram?",
        held(worst < ROUNDING and math.isfinite(worst)),
        f"Largest difference over {data.sizes['case']} chains, orders {span(data.order, '.0f')}, and β up to "
        f"{float(data.operator_beta[-1]):g}: {worst:.0e}.",
    )
