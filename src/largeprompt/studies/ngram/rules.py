"""What the data says: convergence, exact law, mixing, controls, training, the n-gram predictor, and
the operator.
"""

import numpy as np
import xarray as xr

from largeprompt.runs.judging import (
    Answer,
    allowed_score,
    at,
    compared,
    judged,
    listed,
    log_slope,
    rule,
    span,
)

NOMINAL = 1e-9  # rate of false alarms for squared errors, whose skewness costs some of it
ROUNDING = 1e-12


def scores(
    drawn: xr.DataArray, predicted: xr.DataArray, error: xr.DataArray
) -> tuple[float, str, bool]:
    """Largest distance in standard errors where a prediction is known, in words with what is
    allowed, and whether it is.
    """
    worst, allowed = compared(drawn, predicted, error, rate=NOMINAL)
    count = int((drawn - predicted).notnull().sum())
    return (
        worst,
        f"{worst:.1f} standard errors at most in {count} comparisons (allowed {allowed:.1f})",
        worst < allowed,
    )


def combined(gain: xr.DataArray, error: xr.DataArray) -> tuple[float, float]:
    """Standard errors that a gain needs to be real, and the least that all lengths of a law
    together have.
    """
    weights = 1 / error**2
    together = (gain * weights).sum("risk_length") / weights.sum("risk_length") ** 0.5
    return allowed_score(gain.size, sides=1), float(together.min())


@rule(
    "Q3",
    "Do dependent tokens converge to the discrete tilt limit like C/L, with C from the chain's "
    "fundamental matrix?",
)
def constant(data: xr.Dataset) -> Answer:
    """Holds where extrapolated constants are within chance of the predicted ones."""
    _, text, good = scores(data.extrapolated, data.constant, data.extrapolated_standard_error)
    ratio, error = (
        data.extrapolated / data.constant,
        data.extrapolated_standard_error / data.constant,
    )
    mean, spread = (
        float((ratio / error**2).sum() / (1 / error**2).sum()),
        float((1 / error**2).sum()) ** -0.5,
    )
    lengths, errors = (
        data.length.values,
        data.mse.transpose(*data.shortest.dims, "length").values.reshape(-1, data.sizes["length"]),
    )
    long = [
        (lengths >= shortest, one)
        for shortest, one in zip(data.shortest.values.ravel(), errors, strict=True)
    ]
    slopes = [log_slope(lengths[used], one[used]) for used, one in long if used.sum() >= 3]
    return (
        judged(good, rests_on=[mean]),
        f"Extrapolated L·E‖T_L - T‖² over predicted C: {mean:.4f} ± {spread:.4f} on average over "
        f"chains, β and queries; {text}. "
        f"Fitted slopes in L: {span(slopes, '.2f')}. C is "
        f"{span(data.constant / data.independent_constant, '.2f')} times that of "
        "independent tokens.",
        f"Markov prompts reach their limit at {mean:.3g} times the predicted rate.",
    )


@rule("Q3", "Is the exact law of a finite path (transfer matrices) right at every length?")
def exact(data: xr.Dataset) -> Answer:
    """Holds where mean squared distances are within chance of the exact law."""
    _, text, good = scores(data.mse, data.exact, data.mse_standard_error)
    short = data.exact.isel(length=0) * data.length[0] / data.constant
    return (
        judged(good),
        f"Drawn paths of L = {int(data.length[0])} to {int(data.length[-1])} are off by {text}. At "
        f"L = {int(data.length[0])} the "
        f"exact law is {span(short, '.2f')} times C/L.",
    )


@rule("Q3", "Does the rate depend on the mixing time as predicted?")
def mixing(data: xr.Dataset) -> Answer:
    """Holds where drawn errors are within chance of the exact law, and the slowest chain has the
    larger constant.
    """
    _, text, good = scores(data.mixing_drawn, data.mixing_exact, data.mixing_standard_error)
    ratio = data.mixing_constant / data.mixing_independent
    fast, slow = ratio.isel(holding=0), ratio.isel(holding=-1)
    return (
        judged(good and bool((slow > fast).all()), rests_on=[fast, slow]),
        f"C over that of independent tokens for β = {listed(data.mixing_beta.values)}: "
        f"{listed(fast, '.2f')} at relaxation time "
        f"{data.mixing_time[0]:.3g}, {listed(slow, '.2f')} at {data.mixing_time[-1]:.3g}. Drawn "
        f"paths at the longest length are off the exact law by {text}.",
    )


@rule(
    "Q3",
    "Does the price of slow mixing vanish as β grows, where attention becomes the empirical "
    "n-gram?",
)
def immune(data: xr.Dataset) -> Answer:
    """Holds to 1e-6."""
    gap = abs(float(data.mixing_ngram_ratio) - 1)
    return (
        judged(gap < 1e-6, rests_on=[gap]),
        "At β = 30 the slowest chain's C differs from that of independent tokens by a relative "
        f"{gap:.0e}: what follows a context is a martingale difference, whatever the mixing.",
    )


@rule("Q3", "Does the prediction fit the same symbols shuffled in time?", control=True)
def shuffled(data: xr.Dataset) -> Answer:
    """Fails where some distance is beyond chance."""
    predicted, last = data.control_exact.sel(source="chain"), data.isel(length=-1)
    score, _, good = scores(data.shuffled_mse, predicted, data.shuffled_standard_error)
    found, error = float(last.shuffled_mse), float(last.shuffled_standard_error)
    return (
        judged(good, rests_on=[score]),
        f"At L = {int(last.length)} their squared distance to the limit is {found:.3g} ± "
        f"{error:.1g}, up to {score:.0f} standard errors from the prediction ({predicted[-1]:.2g} "
        f"there): they converge to the unigram, {data.shuffled_level:.3g} away.",
    )


@rule(
    "Q3",
    "Do independent tokens, independent symbols and Gaussian tokens give back the base theory in "
    "the same code?",
)
def base(data: xr.Dataset) -> Answer:
    """Holds where constants and exact laws are within chance, and overlapping
    windows cost nothing.
    """
    part = data.sel(source=[name for name in data.source.values if name != "chain"])
    _, first, good = scores(
        part.control_extrapolated, part.control_constant, part.control_extrapolated_standard_error
    )
    _, every, fits = scores(part.control_mse, part.control_exact, part.control_mse_standard_error)
    gap = float(data.independent_symbols_gap)
    return (
        judged(good and fits and gap < ROUNDING, rests_on=[gap]),
        "C of overlapping windows of independent symbols equals the first order for independent "
        f"tokens to {gap:.0e}. Drawn against C: {first}; against the exact laws: {every}.",
    )


@rule("Q3", "On infinite prompts, does the trained β grow without bound, like ½ ln(2At)?")
def growth(data: xr.Dataset) -> Answer:
    """Holds where dβ/d ln t is 1/2 to 0.01 and β is within 0.01 of the law at the end."""
    late = data.sel(time=slice(float(data.time[-1]) / 100, None))
    slope = [
        float(np.polyfit(np.log(late.time), path, 1)[0])
        for path in late.beta_infinite.transpose("training_order", "time")
    ]
    off = float(abs(late.beta_infinite - late.beta_infinite_predicted).isel(time=-1).max())
    return (
        judged(
            off < 0.01 and all(abs(each - 0.5) < 0.01 for each in slope), rests_on=[off, *slope]
        ),
        f"dβ/d ln t = {listed(slope, '.4f')} over the last two decades (orders "
        f"{listed(data.training_order.values)}); at t "
        f"= {data.time[-1]:.0e} β is within {off:.1g} of the law.",
    )


@rule("Q3", "At finite L, does training stop at a finite β*(L) = ln(1 + L/a*)?")
def optimum(data: xr.Dataset) -> Answer:
    """Holds where drawn optima are within chance, and the exact ones tend to the predicted."""
    first, last = at(data, training_order=1), data.isel(training_length=-1)
    _, text, good = scores(first.best_beta, first.best_beta_exact, first.best_beta_standard_error)
    _, _, near = scores(last.best_beta, last.best_beta_predicted, last.best_beta_standard_error)
    before, exact = abs(first.best_beta_exact - first.best_beta_predicted).values[-2:]
    step = np.diff(first.best_beta_exact.values[-2:]) / np.diff(
        np.log(first.training_length.values[-2:])
    )
    return (
        judged(
            good and near and exact < min(0.15, 0.6 * before),
            rests_on=[before, exact, last.best_beta_standard_error],
        ),
        f"At L = {int(last.training_length)}, order 1, the exact risk has its minimum at β = "
        f"{first.best_beta_exact[-1]:.4f}, predicted {first.best_beta_predicted[-1]:.4f} with a* = "
        f"{first.pseudo_count:.2f}; dβ*/d ln L = {step[0]:.3f} at the end. Drawn prompts (orders "
        f"{listed(data.training_order.values)}): {listed(last.best_beta, '.2f')} ± "
        f"{listed(last.best_beta_standard_error, '.2f')}, "
        f"predicted {listed(last.best_beta_predicted, '.2f')}; against the exact minimum: {text}.",
    )


@rule(
    "C5",
    "Do flows of β at length L stay in a tube around the infinite-prompt flow that closes like 1/L "
    "on bounded times?",
)
def tube(data: xr.Dataset) -> Answer:
    """Holds where the exact flows close like 1/L with the first-order constant, and drawn ones are
    within chance of them.
    """
    early = at(data, training_order=1).sel(time=slice(0, float(data.tube_until)))
    sup, lengths = abs(early.beta_exact - early.beta_infinite).max("time"), data.training_length
    ratio = float((sup / abs(early.first_order_shift).max("time") * lengths)[-1])
    slope = log_slope(lengths[-3:], sup[-3:])
    score = abs(early.beta_drawn - early.beta_exact) / early.beta_drawn_standard_error.where(
        early.time > 0
    )
    apart, allowed = float(score.max()), allowed_score(score.size, degrees=int(data.batches) - 1)
    return (
        judged(
            abs(ratio - 1) < 0.05 and abs(slope + 1) < 0.1 and apart <= allowed,
            rests_on=[ratio, slope, apart],
        ),
        f"sup |β_L - β_∞| for t <= {data.tube_until:g} on the exact risks falls from {sup[0]:.2g} "
        f"(L = {int(lengths[0])}) to {sup[-1]:.2g} (L = {int(lengths[-1])}), slope {slope:.2f}, "
        f"{ratio:.3f} times the first order at the end; drawn prompts are {apart:.1f} standard "
        f"errors from it at most ({allowed:.1f} allowed). For all times it does not hold: β_∞ "
        f"passes β*(L) after a time of order L², {data.crossover.sel(training_order=1)[-1]:.0e} "
        "at the longest.",
    )


@rule("Q3", "Does attention approach the in-context empirical n-gram like e^-β, as the limit says?")
def distance(data: xr.Dataset) -> Answer:
    """Holds where the leading constant is right to 1 %, closed forms to rounding, and drawn
    distances to 10 %.
    """
    last = data.isel(risk_length=-1)
    off = float(abs(last.tv_drawn / last.tv - 1).where(last.risk_beta > 0).max())
    far = float(abs((data.row_distance / data.row_leading).isel(operator_beta=-1) - 1).max())
    closed = float(data.closed_form_error)
    return (
        judged(off < 0.1 and far < 0.01 and closed < ROUNDING, rests_on=[off, far, closed]),
        f"Limit: ‖T - P(q,·)‖ = ‖p - P(q,·)‖/(1 + (e^β - 1)π_q) at order 1 to {closed:.0e}; at β "
        f"= {data.operator_beta[-1]:g} its leading constant times e^-β is right to {far:.0e} for "
        f"all orders. Drawn at L = {int(last.risk_length)}: the total variation between head and "
        f"n-gram is within {100 * off:.1f} % of the limit's for every β up to "
        f"{last.risk_beta[-1]:g}.",
    )


@rule(
    "Q3",
    "Does attention at the β that was predicted to be best beat the unsmoothed empirical n-gram?",
)
def beats(data: xr.Dataset) -> Answer:
    """Holds where it saves beyond chance at each length, in part where the lengths together do;
    fails where it loses.
    """
    part, first = data.sel(predictor="attention"), at(data, training_order=1)
    score = float((part.saved / part.saved_standard_error).min())
    ratio, error = (
        part.saved / part.saved_predicted,
        part.saved_standard_error / part.saved_predicted,
    )
    needed, together = combined(ratio, error)
    saves = bool((first.saved_exact > 0).all()) and together > needed
    share = data.saved.sel(predictor="posterior mean") / part.saved
    relative = 100 * part.saved / data.predictor_risk.sel(predictor="n-gram")
    exact = float((first.saved_exact / first.saved_exact_predicted)[-1])
    return (
        "fails"
        if score < -needed
        else judged(score > needed, in_part=True, rests_on=[exact])
        if saves
        else "undecided",
        f"It saves {span(relative[:, 0], '.0f')} % of the n-gram's excess squared risk at L = "
        f"{int(data.risk_length[0])} and "
        f"{span(relative[:, -1], '.2f')} % at {int(data.risk_length[-1])} ({score:.1f} standard "
        f"errors or more at each length and concentration, {together:.0f} or more for the lengths "
        "of one concentration together). At the longest, over the "
        f"predicted B²/(2AL²): {listed(ratio[:, -1], '.2f')} ± {listed(error[:, -1], '.2f')} "
        f"(concentrations {listed(data.concentration.values)}), and {exact:.3f} on the exact risk "
        "of the training chains. The posterior "
        f"mean saves {listed(share[:, -1], '.2f')} times as much.",
    )


@rule(
    "Q3",
    "Does the limit stay a linear operator, the affine read-out of the prompt's mean and "
    "covariance?",
    fails="The paper's Gaussian picture, not claimed for discrete tokens: the limit is a mixture "
    "of skip-grams instead.",
)
def affine(data: xr.Dataset) -> Answer:
    """Fails where the gap is more than rounding, and drawn paths have the exact distance to the
    affine read-out.
    """
    _, text, good = scores(data.affine_mse, data.affine_exact, data.affine_standard_error)
    far = data.isel(operator_beta=-1)
    slope = [
        log_slope(data.operator_beta[:2], gap[:2])
        for gap in data.affine_gap.transpose("case", "operator_beta")
    ]
    gap = float(data.affine_gap.max())
    return (
        judged(gap < ROUNDING, rests_on=[gap]) if good or gap < ROUNDING else "undecided",
        f"The gap between limit and affine read-out is β^{span(slope, '.2f')} at small β and "
        f"{span(far.affine_gap, '.2g')} at β = "
        f"{far.operator_beta:g}, where {span(100 * far.affine_outside, '.0f')} % of the queries "
        "are sent out of the simplex; its best multiple still misses "
        f"{span(100 * far.best_scaled_gap / far.unigram_distance, '.0f')} % of ‖p - "
        f"P(q,·)‖. Drawn paths stop at a squared distance of {data.affine_mse[-1]:.4g} (predicted "
        f"level {data.affine_level:.4g}), off the exact law by {text}.",
        "An affine map misses that limit by a distance of up to "
        f"{float(far.affine_gap.max()):.3g}.",
    )


@rule(
    "Q3",
    "Is the limit, instead, the mixture Σ_S (e^β - 1)^|S| π(q_S) P(· | q_S) of skip-grams, at "
    "order one a gate between row and unigram?",
)
def mixture(data: xr.Dataset) -> Answer:
    """Holds to rounding."""
    worst = float(data.identity_error.max())
    return (
        judged(worst < ROUNDING, rests_on=[worst]),
        f"Largest difference over {data.sizes['case']} chains, orders {span(data.order, '.0f')}, "
        f"and β up to {data.operator_beta[-1]:g}: {worst:.0e}.",
    )


RULES = (
    constant,
    exact,
    mixing,
    immune,
    shuffled,
    base,
    growth,
    optimum,
    tube,
    distance,
    beats,
    affine,
    mixture,
)
