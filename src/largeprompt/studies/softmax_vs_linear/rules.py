"""What the map says: one head, several heads, training, three tasks where the answer turns round,
and controls.
"""

import numpy as np
import xarray as xr

from largeprompt.runs.judging import FALSE_ALARM, Answer, at, compared, judged, listed, rule, span

LIMIT = 1e-3  # relative: what counts as having reached a predicted limit
CLOSE = 1e-2  # relative: what counts as having found the best block parameters
EXACT = 1e-5
ROUNDING = 1e-5  # a smaller lead over linear attention is none
SHORT, LONG = 10, 30


def ratio(data: xr.Dataset) -> xr.DataArray:
    """Excess risk of the best softmax head over that of the best linear attention."""
    found: xr.DataArray = data.softmax_best / data.linear_best
    return found


@rule(
    "Q1",
    "On long prompts, is the excess of the best softmax head the predicted constant times that of "
    "the best linear attention?",
)
def limit(data: xr.Dataset) -> Answer:
    """Holds to 1e-3 for all covariances, where linear attention is c/(1 + c)."""
    off = float(abs(ratio(data).isel(length=-1) / data.limit_ratio - 1).max())
    other = (data.spectrum_softmax / data.spectrum_linear).isel(
        spectrum_length=-1
    ) / data.spectrum_limit - 1
    worst, closed = (
        float(abs(other).max()),
        float(abs(data.linear_best / data.linear_predicted - 1).max()),
    )
    calm = data.limit_ratio.isel(noise=0)
    return (
        judged(max(off, worst) < LIMIT and closed < EXACT, rests_on=[off, worst, closed]),
        f"Predicted for s² = {data.noise[0]:g}: {listed(calm, '.2f', 'd = {}')}. At L = "
        f"{data.length[-1]:.0e} the "
        f"exact ratios are within {off:.1e} of the prediction for all dimensions and noise levels; "
        f"for {data.sizes['spectrum']} "
        f"other covariances within {worst:.1e}. Linear attention is c/(1+c) to {closed:.0e}.",
    )


@rule(
    "Q1",
    "Is linear attention at least as good as one softmax head on in-context regression at every "
    "length?",
)
def one_head(data: xr.Dataset) -> Answer:
    """Holds where no excess of a softmax head is below that of linear attention."""
    every = np.concatenate(
        [ratio(data).values.ravel(), (data.spectrum_softmax / data.spectrum_linear).values.ravel()]
    )
    least = float(every.min())
    at = ratio(data).where(ratio(data) == ratio(data).min(), drop=True)
    where = f"L = {at.length[0]:g}, d = {int(at.dim[0])}, s² = {at.noise[0]:g}"
    short = data.sel(length=data.length <= SHORT)
    read = ""
    if short.length.size:
        gain = float(((1 - short.softmax_best) / (1 - short.linear_best)).max())
        read = (
            f" Up to L = {SHORT} softmax reads at most {gain:.2f} of the variance that linear "
            "attention reads."
        )
    return (
        judged(least >= 1, rests_on=[least]),
        f"{len(every)} tasks (length, dimension, noise, spectrum): the excess of softmax is at "
        f"least {least:.4f} ({where}) and at "
        f"most {every.max():.2f} times that of linear attention." + read,
    )


@rule("Q1", "Do two heads with opposite tilts recover the constant of linear attention?")
def pair(data: xr.Dataset) -> Answer:
    """Holds where the longest prompt gives the excess of linear attention, and small tilts their
    predicted one.
    """
    two = at(data.heads_excess, heads=2) / data.heads_linear
    end, limit = (
        float(two.isel(head_length=-1).max()),
        float(abs(data.pair_small_tilt / data.heads_vanishing - 1).max()),
    )
    over = ((two - 1) * (data.head_length - 1)).sel(
        head_length=(data.head_length >= LONG) & (data.head_length < 1e5)
    )
    text = ""
    if over.size:
        text = (
            f" From L = {LONG} on its best excess is above linear attention's by at most "
            f"{over.max():.2f}/(L - 1)."
        )
    return (
        judged(abs(end - 1) < 1e-4 and limit < 1e-4, rests_on=[end, limit]),
        f"At L = {data.head_length[-1]:.0e} the excess is {end:.6f} of linear attention's. As the "
        "tilts vanish the pair is "
        f"linear attention over L - 1 tokens, centring having cost one (found to {limit:.0e})."
        + text,
    )


@rule("Q1", "Do several softmax heads beat linear attention on in-context regression?")
def heads(data: xr.Dataset) -> Answer:
    """Holds where they win in every case, in part where they win in some."""
    share = (
        at(data.heads_excess / data.heads_linear, heads=[2, 4, 8])
        .dropna("heads", how="all")
        .transpose("heads", ...)
    )
    text = "; ".join(_wins(row.dropna("head_length", how="all")) for row in share)
    skew = data.skew_excess
    opposite = ""
    if -1.0 in skew.skew_ratio.values:
        best = bool((skew.sel(skew_ratio=-1.0) <= skew.min("skew_ratio") * (1 + 1e-9)).all())
        often = "always" if best else "not always"
        opposite = (
            f" Of {skew.sizes['skew_ratio']} ratios of two tilts, both read-outs free, -1 "
            f"is {often} the best."
        )
    won, total = int((share < 1 - ROUNDING).sum()), int(share.notnull().sum())
    gain = f", by {100 * (1 - float(share.min())):.1f} % at most" if won else ""
    return (
        judged(won == total, in_part=won > 0, rests_on=[data.heads_excess.sel(heads=2)]),
        f"In {won} of {total} cases{gain}. {text}.{opposite}",
        f"Several softmax heads win {won} of {total} regressions{gain}.",
    )


def _wins(row: xr.DataArray) -> str:
    """Where one number of heads has a lower excess than linear attention, and the least ratio."""
    won = row.where(row < 1 - ROUNDING, drop=True)
    if not won.size:
        return f"{int(row.heads)} heads: nowhere, least ratio {row.min():.4f}"
    lengths = f"L = {span(won.head_length, 'g')} of at most {row.head_length.max():.3g}"
    tasks = f"d = {listed(won.head_dim)}, s² = {listed(won.head_noise)}"
    return f"{int(row.heads)} heads: {lengths}, {tasks}, least ratio {row.min():.4f}"


@rule(
    "Q1",
    "Do heads with free matrices, trained on drawn prompts, do better than tilts along the query?",
    fails="A conjecture of ours, and good news for the theory: the heads that it studies lose "
    "nothing.",
)
def free(data: xr.Dataset) -> Answer:
    """Holds where the gain is five standard errors for some number of heads; undecided where the
    exact risks are missed.
    """
    score, allowed = compared(data.free_at_optimum, data.free_exact, data.free_at_optimum_error)
    gain, error = data.free_gain / data.free_exact, data.free_gain_error / data.free_exact
    rows = zip(gain, error, data.free_heads, strict=True)
    text = ", ".join(
        f"{100 * float(g):.3f} ± {100 * float(e):.3f} % ({int(h)} heads)" for g, e, h in rows
    )
    helps = bool((gain > 5 * error).any())
    return (
        judged(helps, rests_on=[gain, error]) if score <= allowed else "undecided",
        f"Matrices lower the excess on fresh prompts by {text} against tilts that are trained "
        "alike, to "
        f"{listed(data.free_trained / data.free_linear, '.3f')} of linear attention's. At the "
        f"exact optima drawn prompts lie within {score:.1f} standard errors of the exact risk.",
    )


@rule("C7", "Does training from the theorem's start reach the best parameters of either attention?")
def trained(data: xr.Dataset) -> Answer:
    """Holds where both flows end within 1e-5 of the least excess."""
    gaps = {
        kind: float(abs(data[f"{kind}_trained"] / data[f"{kind}_found"] - 1).max())
        for kind in ("softmax", "linear")
    }
    share = (data.softmax_trained / data.linear_trained).isel(trained_spectrum=0)
    text = listed(share, ".3f", "L = {:g}")
    return (
        judged(max(gaps.values()) < EXACT, rests_on=gaps.values()),
        f"The flow ends within {gaps['softmax']:.1e} (softmax) and {gaps['linear']:.1e} (linear) "
        f"of the least excess: trained softmax has {text} times the excess of trained linear "
        f"attention ({data.trained_spectrum.values[0]}).",
    )


@rule("Q1", "Do flows of all entries of U and V from random starts stay above linear attention?")
def starts(data: xr.Dataset) -> Answer:
    """Fails where a flow ends below linear attention; undecided where none finds the best block
    parameters.
    """
    below, linear = (
        float((data.start_excess / data[f"start_{name}"]).min()) for name in ("block", "linear")
    )
    worse = int((data.start_excess > 1.05 * data.start_block).sum())
    # else the searches say nothing
    found = bool((data.start_excess <= (1 + CLOSE) * data.start_block).any())
    return (
        "undecided" if linear > 1 and not found else judged(linear > 1, rests_on=[linear]),
        f"{data.start_excess.size} starts end at {below:.4f} times the excess of the best block "
        f"parameters or more ({worse} of them in a worse local minimum), and at {linear:.2f} "
        "times that of linear attention or more.",
    )


@rule(
    "Q1",
    "One informative token among L: does softmax win, and from the predicted spike ν = 2 ln L on "
    "by reading most of it?",
)
def location(data: xr.Dataset) -> Answer:
    """Holds where softmax wins within its bounds, and half is read near ν = 2 ln L; in part where
    it only wins.
    """
    low, high = (data.location_bounds.sel(bound=name) for name in ("lower", "upper"))
    inside = bool(
        (
            (data.location_softmax >= low * (1 - 1e-9))
            & (data.location_softmax <= high * (1 + 1e-9))
        ).all()
    )
    wins = bool((data.location_missed <= (1 - data.location_linear) * (1 + 1e-12)).all())
    half = data.location_half
    end = float(half[-1] / data.location_threshold[-1])
    best = float(
        (data.location_softmax / data.location_linear.where(data.location_linear > 0)).max()
    )
    return (
        judged(
            inside and wins and abs(end - 1) < 0.1,
            in_part=wins,
            rests_on=[data.location_softmax, data.location_missed, end],
        ),
        "Softmax, which is Bayes here, reads half of the answer at ν = "
        f"{listed(half, '.2f', 'L = {:.0e}')}, at the longest "
        f"{end:.3f} of 2 ln L; linear attention reads ν/(ν + L), up to {best:.1e} times less. The "
        f"exact share is {'' if inside else 'not '}everywhere between its bounds.",
        f"Reading one informative token, softmax wins up to {best:.3g}-fold.",
    )


@rule(
    "Q1",
    "Regression with marked outliers: does softmax win beyond the predicted variance of the "
    "outliers?",
)
def outliers(data: xr.Dataset) -> Answer:
    """Holds where the crossing tends to the predicted one, within 10 % at the longest."""
    off = abs(data.outlier_crossing / data.outlier_predicted - 1)
    end = float(off.isel(outlier_length=-1).max())
    closing = data.sizes["outlier_length"] < 2 or end < float(off.isel(outlier_length=-2).max())
    middle = data.sel(outlier_share=data.outlier_share.values[data.sizes["outlier_share"] // 2])
    text = listed(middle.outlier_crossing, ".3g", "L = {:g}")
    return (
        judged(end < 0.1 and closing, rests_on=[end]),
        f"With a share {middle.outlier_share:g} of outliers the risks cross at τ² = {text}, "
        f"predicted {middle.outlier_predicted[0]:.3g} for long prompts. Over all shares the "
        f"crossing is within {100 * float(off.max()):.0f} % of the prediction, at the longest "
        f"within {100 * end:.2f} %.",
    )


@rule(
    "Q1",
    "Prompts with a mean of their own: does a pair of softmax heads beat linear attention from the "
    "predicted length on?",
)
def shifts(data: xr.Dataset) -> Answer:
    """Holds where the pair wins at every length beyond the predicted one."""
    linear, head, pair = (
        data.shift_excess.sel(reader=name) for name in ("linear", "one head", "pair")
    )
    beyond = data.shift_length >= data.shift_crossing
    wins = bool((pair <= linear * (1 + 1e-9)).where(beyond, True).all())
    early = int((pair < linear).where(~beyond, False).sum())
    row = data.isel(shift_dim=-1)
    kept, end = 100 * data.shift_floor, (head / linear).isel(shift_length=-1)
    return (
        judged(wins, rests_on=[linear, pair, kept]),
        f"Predicted lengths for d = {int(row.shift_dim)}: "
        f"{listed(row.shift_crossing, '.3g', 'τ² = {:g}')}; beyond them the pair "
        f"{'always wins' if wins else 'does not always win'}, and in {early} cases earlier. "
        f"Linear attention loses {span(kept)} % of the signal for ever; at L = "
        f"{data.shift_length[-1]:g} one head has {span(end)} times its excess.",
    )


@rule("Q1", "Do drawn prompts agree with the exact risks, all tasks and all kinds of attention?")
def drawn(data: xr.Dataset) -> Answer:
    """Holds where all means are within chance of the exact risks."""
    worst, allowed = compared(data.drawn_mean, data.drawn_exact, data.drawn_error)
    size = 100 * data.drawn_error / data.drawn_exact
    return (
        judged(worst <= allowed, rests_on=[size, data.drawn_mean]),
        f"{size.size} means, known to {span(size, '.1f')} %, lie within {worst:.1f} standard "
        f"errors, {allowed:.1f} allowed (false alarms in {FALSE_ALARM:g} of runs).",
    )


@rule(
    "Q1",
    "Do two equal heads give back one, and do both attentions reach the infinite prompt's risk?",
)
def identical(data: xr.Dataset) -> Answer:
    """Holds to rounding, where little is lost at the longest prompt."""
    same, left = float(data.identical_heads.max()), float(data.softmax_best.isel(length=-1).max())
    c = float(data.linear_predicted.isel(length=-1).max())
    return (
        judged(same < 1e-9 and left < 10 * c < 0.1, rests_on=[same, left, c]),
        f"The two-dimensional rule at equal tilts is the one-dimensional one to {same:.0e}; at L = "
        f"{data.length[-1]:.0e} "
        f"softmax loses at most {left:.1e} of the signal's variance, linear attention {c:.1e}.",
    )


@rule("Q1", "Does softmax overtake linear attention on outliers that carry no mark?", control=True)
def blind(data: xr.Dataset) -> Answer:
    """Fails where softmax is worse at every share and length."""
    least, end = (
        float(data.outlier_unmarked.min()),
        float(data.outlier_unmarked.isel(outlier_length=-1).min()),
    )
    calm = float(data.shift_none.isel(shift_length=-1).max())
    return (
        judged(least < 1, rests_on=[least]),
        f"At the largest variance its risk is at least {least:.4f} times that of linear attention "
        f"over all shares and lengths, where both read next to nothing, and at least {end:.2f} "
        f"times at the longest. (Without a mean of their own, at L = {data.shift_length[-1]:g}, "
        f"linear attention has {calm:.4f} of the risk of a pair.)",
    )


RULES = (
    limit,
    one_head,
    pair,
    heads,
    free,
    trained,
    starts,
    location,
    outliers,
    shifts,
    drawn,
    identical,
    blind,
)
