"""What the data of the depth study says, by rule."""

import math

import numpy as np
import xarray as xr

from largeprompt.runs.judging import Answer, allowed_score, compared, judged, rule, span
from largeprompt.studies.depth.config import THRESHOLD
from largeprompt.studies.lengths import sharp_exponent

WITHIN = 0.1  # of the band, and of the slope -1
LEVEL_WITHIN = 0.2  # of the squared level at which a normalised closure should stop
COMPARED = ("token", "mean", "covariance")


def tame(data: xr.Dataset, length: float | None = None) -> xr.Dataset:
    """Cases with a band through all layers that should not break at this length; by default the
    shortest fitted one.

    Which these are is decided by the prediction (:func:`breaking_window`), not by the data.
    """
    first = float(data.length[data.length >= data.fitted_from][0]) if length is None else length
    banded = np.isfinite(data.band.sel(quantity="token").isel(layer=-1))
    safe = breaking_window(data)[0].sel(length=first) > data.layer.max()
    return data.isel(case=np.flatnonzero((banded & safe).values), layer=slice(1, None))


def common_lengths(data: xr.Dataset) -> list[float]:
    """Lengths from the shortest fitted one on that every case has."""
    known = np.isfinite(data.raw.sel(quantity="token").isel(layer=1)).all("case")
    return [float(each) for each in data.length[known & (data.length >= data.fitted_from)]]


@rule(
    "Q2",
    "Is one layer the law of `convergence`, and do layers with V = 0 leave the tokens where they "
    "are?",
)
def one_layer(data: xr.Dataset) -> Answer:
    """Holds where queries outside the prompt are within chance of the exact law, and V = 0 moves
    nothing.
    """
    worst, limit = compared(data.one_layer, data.one_layer_exact, data.one_layer_standard_error)
    still = float(data.identity_error)
    own = float(abs(data.one_layer_self / data.one_layer_exact - 1)[-1])
    first = abs(float(data.one_layer_band) / float(data.one_layer_leading) - 1)
    return (
        judged(worst < limit and still == 0, rests_on=[worst, still]),
        f"Queries outside the prompt are within {worst:.1f} standard errors of the exact law "
        f"averaged over the query, L = {int(data.control_length[0])} to "
        f"{int(data.control_length[-1])} (allowed {limit:.1f}); tokens that read themselves are "
        f"{own:.1%} off at the longest; the band at one layer is its first order to {first:.0e}. "
        f"V = 0 moves nothing ({still:g}).",
    )


@rule(
    "Q2",
    "Where the closure should not break, do mean, covariance and tokens tend to the closure like "
    "1/L?",
)
def rate(data: xr.Dataset) -> Answer:
    """Holds where all slopes are within 0.1 of -1, fails where an interval leaves that."""
    part = tame(data).slope.sel(quantity=list(COMPARED))
    middle, low, high = (part.sel(interval=each) for each in ("estimate", "lower", "upper"))
    outside = bool(((low > -1 + WITHIN) | (high < -1 - WITHIN)).any())
    inside = bool((abs(middle + 1) <= WITHIN).all())
    widest = float((high - low).max()) / 2
    texts = [f"{span(middle.sel(quantity=q), '.3f')} ({q})" for q in COMPARED]
    lengths = common_lengths(data)
    bent = float(abs(tame(data).kurtosis.sel(length=lengths[-1])).max())
    return (
        "fails" if outside else "holds" if inside and middle.size else "undecided",
        f"Slopes of the squared errors in L over {part.sizes['case']} stacks and layers 1 to "
        f"{int(data.layer.max())}, L = {lengths[0]:g} to {lengths[-1]:g}: {', '.join(texts)}; "
        f"widest 95 % interval ±{widest:.3f}. The tokens stay Gaussian: excess kurtosis at most "
        f"{bent:.3f} at L = {lengths[-1]:g}.",
    )


def band_ratio(data: xr.Dataset) -> tuple[xr.DataArray, xr.DataArray]:
    """Measured over predicted squared error of the tame cases at the common lengths, with its
    standard error.
    """
    part = tame(data).sel(quantity=list(COMPARED), length=common_lengths(data))
    expected = part.band / part.length
    return part.error / expected, part.standard_error / expected


@rule(
    "Q2",
    "Is the error of mean, covariance and tokens after every layer the propagated finite-length "
    "noise?",
)
def band(data: xr.Dataset) -> Answer:
    """Holds to 10 % and chance; undecided where chance alone allows a half."""
    ratio, error = band_ratio(data)
    limit = allowed_score(ratio.size)
    inside = bool((abs(ratio - 1) <= WITHIN + limit * error).all())
    sharp = bool((limit * error <= THRESHOLD).all())  # else a comparison could not have failed
    off = abs(ratio - 1).transpose("length", ...)
    texts = [f"{each.median():.1%} (worst {each.max():.1%}) at L = {each.length:g}" for each in off]
    return (
        judged(inside, rests_on=[ratio, error])
        if not inside or (sharp and ratio.size)
        else "undecided",
        f"Measured over predicted squared error differs from 1 by {', '.join(texts)} in the median "
        f"over {ratio.sizes['case']} "
        f"stacks, {ratio.sizes['layer']} layers and three quantities; standard error "
        f"{error.median():.1%} (largest {error.max():.1%}).",
        f"Errors after each layer are the predicted ones to {off.median():.1%} (median).",
    )


@rule(
    "Q2", "Would it do to add up the noise of the layers as if they were independent?", control=True
)
def naive(data: xr.Dataset) -> Answer:
    """Holds where it gives 0.8 to 1.25 of the predicted squared error."""
    part = tame(data)
    band = part.band.sel(quantity="token")
    alone, unfed = part.independent / band, part.without_feedback / band
    return (
        judged(bool(((alone > 0.8) & (alone < 1.25)).all()), rests_on=[alone]),
        f"That gives {span(alone, '.2g')} times the predicted squared error of tokens: layers read "
        "the same tokens. With this "
        f"correlation but without the feedback of displaced tokens it is {span(unfed, '.2g')} "
        "times.",
    )


@rule(
    "Q2",
    "Can the displacement of each token be read off the Hermite moments of its prompt, before any "
    "layer is run?",
)
def realised(data: xr.Dataset) -> Answer:
    """Holds where at most 5 % of the squared error is left everywhere, in part where that is the
    median.
    """
    lengths = common_lengths(data)
    part = tame(data)
    share = (part.residual / part.raw.sel(quantity="token")).sel(length=lengths)
    first, last = share.isel(length=0), share.isel(length=-1)
    slope = (np.log(last) - np.log(first)) / math.log(lengths[-1] / lengths[0])
    worst = float(last.max())
    return (
        judged(worst < 0.05, in_part=float(last.median()) < 0.05, rests_on=[worst]),
        f"It explains all but {last.median():.2%} of the squared error at L = {lengths[-1]:g} "
        f"(worst case and layer {worst:.1%}); the rest falls with exponent {slope.median():.2f} "
        "(-1 expected, down to the share of "
        f"the modes left out, {part['tail'].max():.2%} at most).",
    )


@rule("Q2", "Is 1/L lost, as predicted, where some layer of the recursion has H² >= 1/2?")
def slower(data: xr.Dataset) -> Answer:
    """Holds where every interval of the slope is above -0.9, fails where one is below; undecided
    without such a stack.
    """
    lengths = common_lengths(data)
    whole = (data.measured_breaking.sel(length=lengths) > data.layer.max()).all("length")
    lost = np.isnan(data.band.sel(quantity="token").isel(layer=-1)) & whole
    part = data.isel(case=np.flatnonzero(lost.values))
    slope = part.slope.sel(quantity="token").isel(layer=-1)
    low, high = slope.sel(interval="lower"), slope.sel(interval="upper")
    holds, fails = (
        bool(slope.size) and bool((low > -1 + WITHIN).all()),
        bool((high < -1 + WITHIN).any()),
    )
    texts = [
        f"{one.slope.sel(quantity='token', interval='estimate').isel(layer=-1):.2f} (95 %: "
        f"{low.sel(case=one.case):.2f} to {high.sel(case=one.case):.2f}) where H² reaches "
        f"{one.h_squared.max():.2f}, g = {sharp_exponent(float(one.h_squared.max())):.2f} as L → ∞"
        for one in (part.isel(case=i) for i in range(part.sizes["case"]))
    ]
    return (
        "holds" if holds else "fails" if fails else "undecided",
        "Slope of the squared token error after the last layer: "
        f"{'; '.join(texts) or 'no such case, 0 stacks'}.",
    )


def breaking_window(data: xr.Dataset) -> tuple[xr.DataArray, xr.DataArray]:
    """First and last layer at which the closure should break: from 'linear' to 'frozen', or where
    the band itself passes.
    """
    early, late = (
        np.fmin(data.predicted_edge, data.predicted_crossing),
        np.fmin(data.predicted_frozen, data.predicted_crossing),
    )
    return early, late


@rule("Q2", "Does the recursion alone say at which layer the closure breaks?")
def breaking(data: xr.Dataset) -> Answer:
    """Holds where nine in ten break within one layer of the predicted ones, in part
    where half do.
    """
    early, late = breaking_window(data)
    measured, none = data.measured_breaking, int(data.layer.max()) + 1
    known = np.isfinite(measured)
    event = known & ((late < none) | (measured < none))
    off = ((measured - late).clip(min=0) + (early - measured).clip(min=0)).where(known)
    exact, near = int((off.where(event) == 0).sum()), int((off.where(event) <= 1).sum())
    count, calm = int(event.sum()), int((known & ~event).sum())
    share = near / count if count else math.nan
    longest = common_lengths(data)[-1]
    last, away = event.sel(length=longest), off.sel(length=longest)
    return (
        judged(share > 0.9, in_part=share > 0.5, rests_on=[share]) if count else "undecided",
        f"Of {count} stacks and lengths that break, or should, {exact} do between the layer that "
        f"leaves 'linear' (L < e^(2σ²), or a band above {data.threshold:g}) and the one that is "
        f"'frozen', {near} within one layer of that; the other {calm} neither should nor do; the "
        f"furthest off is by {off.max():g} layers. At L = {longest:g} these are "
        f"{int(last.sum())}, off by at most {away.where(last, 0).max():g}.",
        f"Of {count} stacks that break, {near} do so where predicted.",
    )


def _root(squares: xr.DataArray, errors: xr.DataArray) -> tuple[str, bool]:
    """Root of the mean over layers with its error, in words, and whether it is distinct from 0."""
    square, error = float(squares.mean()), float(errors.mean())
    root = math.sqrt(max(square, 0.0))
    known = square > 3 * error
    return (
        f"{root:.3f} ± {error / (2 * root):.3f}"
        if known
        else f"below {math.sqrt(root**2 + 3 * error):.3f}"
    ), known


@rule(
    "Q2",
    "With normalisation, does the error of the closure stop falling with L at the predicted level?",
)
def level(data: xr.Dataset) -> Answer:
    """Holds where all measured levels agree with the predicted ones and all are resolved, in part
    where some are.
    """
    part = data.isel(layer=slice(1, None))
    off = abs(part.measured_level - part.level)
    limit = allowed_score(off.size)
    spread = np.hypot(part.measured_level_error, part.level_error)
    room = LEVEL_WITHIN * part.level.clip(min=0) + limit * spread
    inside = bool((off <= room).all())
    # over layers, per stack: mean level and the mean of what was measured; layers are correlated,
    # so their errors are added
    texts, resolved = [], []
    for i in range(part.sizes["normalised"]):
        one = part.isel(normalised=i)
        words, known = zip(
            *(_root(one[name], one[f"{name}_error"]) for name in ("level", "measured_level")),
            strict=True,
        )
        resolved.append(all(known))
        texts.append(f"{one.kind.values!s} d = {int(one.dim)}: {words[0]}, {words[1]}")
    return (
        judged(inside and all(resolved), in_part=inside, rests_on=[off, room])
        if not inside or any(resolved)
        else "undecided",
        "Relative error at infinite length, root mean square over layers, predicted and measured: "
        f"{'; '.join(texts)}.",
    )


@rule("Q2", "With V of size 1, does normalisation keep the closure from breaking?")
def normalised(data: xr.Dataset) -> Answer:
    """Holds where no largest error passes the threshold, in part where some do."""
    last = data.normalised_error.isel(normalised_length=-1, layer=slice(1, None))
    worst = np.sqrt(last.max("layer"))
    dims = sorted({int(each) for each in data.dim.values})
    texts = [f"{worst[data.dim.values == dim].max():.2f} (d = {dim})" for dim in dims]
    scores, length, broken = (
        float(data.normalised_score_variance.max()),
        int(data.normalised_length[-1]),
        worst > THRESHOLD,
    )
    return (
        judged(not bool(broken.any()), in_part=not bool(broken.all()), rests_on=[worst]),
        f"Without it these stacks leave the linear regime at layers {int(data.plain_edge.min())} "
        f"to {int(data.plain_edge.max())} (L = {length}); with it the score variance never "
        f"exceeds {scores:.2f}, and the largest relative token error over layers is "
        f"{', '.join(texts)} at L = {length}.",
    )


@rule("Q2", "Would it do to leave the covariance as it was on entry?", control=True)
def frozen(data: xr.Dataset) -> Answer:
    """Fails where some stack is then twice as wrong."""
    lengths = common_lengths(data)
    part = tame(data, lengths[-1]).isel(layer=-1)
    last = np.sqrt(
        part.frozen.sel(length=lengths[-1]) / part.raw.sel(quantity="token", length=lengths[-1])
    )
    fall = np.sqrt(part.frozen.sel(length=lengths[0]) / part.frozen.sel(length=lengths[-1]))
    return (
        judged(not bool((last > 2).any()), rests_on=[last]),
        f"After the last layer token outputs are then {span(last, '.1f')} times as wrong as with "
        "the recursion at L = "
        f"{lengths[-1]:g}, and from L = {lengths[0]:g} on the error falls by {span(fall, '.2f')} "
        f"times only (a 1/L law: {math.sqrt(lengths[-1] / lengths[0]):.1f}).",
    )


@rule(
    "C7",
    "Does a stack of softmax layers compute on a long prompt what its affine (linear-attention) "
    "limit does?",
)
def transfer(data: xr.Dataset) -> Answer:
    """Holds where no stack breaks and the outputs are near, in part where only those that should
    not break do not.
    """
    lengths = common_lengths(data)
    part = tame(data)
    final = np.sqrt(part.raw.sel(quantity="token", length=lengths[-1]).isel(layer=-1))
    broken = data.measured_breaking.sel(length=lengths[-1])
    failed = data.case[(broken <= data.layer.max()).values]
    scales = sorted({str(data.value_scale.sel(case=case).values) for case in failed.values})
    near = bool(final.size) and float(final.max()) <= THRESHOLD
    breaks = (
        f"{len(failed)} of {data.sizes['case']} stacks break at that length, V of size "
        f"{', '.join(scales)}."
        if scales
        else ""
    )
    return (
        judged(near and not len(failed), in_part=near, rests_on=[final]),
        f"After {int(data.layer.max())} layers and L = {lengths[-1]:g} token outputs are off by "
        f"{span(final, '.2%')} (root mean "
        f"square, {final.size} stacks), falling like 1/√L. {breaks}",
    )


RULES = (
    one_layer,
    rate,
    band,
    naive,
    realised,
    slower,
    breaking,
    level,
    normalised,
    frozen,
    transfer,
)
