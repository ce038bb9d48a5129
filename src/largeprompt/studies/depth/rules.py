"""What the data of the depth study says, by rule."""

from __future__ import annotations

import math

import numpy as np
import xarray as xr

from largeprompt.runs.study import Outcome, Verdict
from largeprompt.studies.exponent.study import sharp_exponent

FALSE_ALARM = 1e-6  # of all comparisons of one verdict together
THRESHOLD = 0.5  # relative error of the step that a layer makes, from which on the closure counts as broken
WITHIN = 0.1  # of the band, and of the slope -1
LEVEL_WITHIN = 0.2  # of the squared level at which a normalised closure should stop
COMPARED = ("token", "mean", "covariance")


def allowed(comparisons: int) -> float:
    """Standard errors that all comparisons together pass only at the false-alarm rate."""
    from scipy.stats import norm

    return float(norm.isf(FALSE_ALARM / (2 * max(1, comparisons))))


def tame(data: xr.Dataset, length: float | None = None) -> xr.Dataset:
    """Cases with a band through all layers that should not break at this length; by default the shortest fitted one.

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


def verdicts(data: xr.Dataset) -> list[Verdict]:
    """Rate, band, realised noise, breaking, normalisation, and the controls."""
    found = [_one_layer(data), _rate(data), _band(data), _naive(data), _realised(data), _slower(data), _breaking(data)]
    return [*found, _level(data), _normalised(data), _frozen(data), _transfer(data)]


def _one_layer(data: xr.Dataset) -> Verdict:
    error = np.hypot(data.one_layer_standard_error, data.one_layer_exact_error)
    worst = float((abs(data.one_layer - data.one_layer_exact) / error).max())
    limit, still = allowed(data.sizes["control_length"]), float(data.identity_error)
    own = float(abs(data.one_layer_self / data.one_layer_exact - 1)[-1])
    first = abs(float(data.one_layer_band) / float(data.one_layer_leading) - 1)
    return Verdict(
        "Q2",
        "Is one layer the law of `convergence`, and do layers with V = 0 leave the tokens where they are?",
        "holds" if worst < limit and still == 0 else "fails",
        f"Queries outside the prompt are within {worst:.1f} standard errors of the exact law averaged over the query, L = "
        f"{int(data.control_length[0])} to {int(data.control_length[-1])} (allowed {limit:.1f}); tokens that read themselves are "
        f"{own:.1%} off at the longest; the band at one layer is its first order to {first:.0e}. V = 0 moves nothing ({still:g}).",
    )


def _rate(data: xr.Dataset) -> Verdict:
    part = tame(data).slope.sel(quantity=list(COMPARED))
    middle, low, high = (part.sel(interval=each) for each in ("estimate", "lower", "upper"))
    outside = bool(((low > -1 + WITHIN) | (high < -1 - WITHIN)).any())
    inside = bool((abs(middle + 1) <= WITHIN).all())
    widest = float((high - low).max()) / 2
    texts = [f"{float(middle.sel(quantity=q).min()):.3f} to {float(middle.sel(quantity=q).max()):.3f} ({q})" for q in COMPARED]
    lengths = common_lengths(data)
    bent = float(abs(tame(data).kurtosis.sel(length=lengths[-1])).max())
    return Verdict(
        "Q2",
        "Where the closure should not break, do mean, covariance and tokens tend to the closure like 1/L?",
        "fails" if outside else "holds" if inside and middle.size else "undecided",
        f"Slopes of the squared errors in L over {part.sizes['case']} stacks and layers 1 to {int(data.layer.max())}, L = "
        f"{lengths[0]:g} to {lengths[-1]:g}: {', '.join(texts)}; widest 95 % interval ±{widest:.3f}. The tokens stay Gaussian: "
        f"excess kurtosis at most {bent:.3f} at L = {lengths[-1]:g}.",
    )


def band_ratio(data: xr.Dataset) -> tuple[xr.DataArray, xr.DataArray]:
    """Measured over predicted squared error of the tame cases at the common lengths, with its standard error."""
    part = tame(data).sel(quantity=list(COMPARED), length=common_lengths(data))
    expected = part.band / part.length
    return part.error / expected, part.standard_error / expected


def _band(data: xr.Dataset) -> Verdict:
    ratio, error = band_ratio(data)
    limit = allowed(ratio.size)
    inside = bool((abs(ratio - 1) <= WITHIN + limit * error).all())
    sharp = bool((limit * error <= THRESHOLD).all())  # else a comparison could not have failed
    texts = [
        f"{float(abs(ratio.sel(length=n) - 1).median()):.1%} (worst {float(abs(ratio.sel(length=n) - 1).max()):.1%}) at L = {n:g}"
        for n in ratio.length.values
    ]
    return Verdict(
        "Q2",
        "Is the error of mean, covariance and tokens after every layer the propagated finite-length noise?",
        "fails" if not inside else "holds" if sharp and ratio.size else "undecided",
        f"Measured over predicted squared error differs from 1 by {', '.join(texts)} in the median over {ratio.sizes['case']} "
        f"stacks, {ratio.sizes['layer']} layers and three quantities; standard error {float(error.median()):.1%} "
        f"(largest {float(error.max()):.1%}).",
    )


def _naive(data: xr.Dataset) -> Verdict:
    part = tame(data)
    band = part.band.sel(quantity="token")
    alone, unfed = part.independent / band, part.without_feedback / band
    good = bool(((alone > 0.8) & (alone < 1.25)).all())
    return Verdict(
        "Q2",
        "Would it do to add up the noise of the layers as if they were independent?",
        "holds" if good else "fails",
        f"That gives {float(alone.min()):.2g} to {float(alone.max()):.2g} times the predicted squared error of tokens: layers read "
        f"the same tokens. With this correlation but without the feedback of displaced tokens it is {float(unfed.min()):.2g} to "
        f"{float(unfed.max()):.2g} times.",
        control=True,
    )


def _realised(data: xr.Dataset) -> Verdict:
    lengths = common_lengths(data)
    part = tame(data)
    share = (part.residual / part.raw.sel(quantity="token")).sel(length=lengths)
    first, last = share.isel(length=0), share.isel(length=-1)
    slope = (np.log(last) - np.log(first)) / math.log(lengths[-1] / lengths[0])
    worst = float(last.max())
    return Verdict(
        "Q2",
        "Can the displacement of each token be read off the Hermite moments of its prompt, before any layer is run?",
        "holds" if worst < 0.05 else "holds in part" if float(last.median()) < 0.05 else "fails",
        f"It explains all but {float(last.median()):.2%} of the squared error at L = {lengths[-1]:g} (worst case and layer "
        f"{worst:.1%}); what is left over the whole falls like L^{float(slope.median()):.2f} (-1 expected, down "
        f"to the share of the modes left out, {float(part['tail'].max()):.2%} at most).",
    )


def _slower(data: xr.Dataset) -> Verdict:
    lengths = common_lengths(data)
    lost = np.isnan(data.band.sel(quantity="token").isel(layer=-1)) & (
        data.measured_breaking.sel(length=lengths) > data.layer.max()
    ).all("length")
    part = data.isel(case=np.flatnonzero(lost.values))
    slope = part.slope.sel(quantity="token").isel(layer=-1)
    low, high = slope.sel(interval="lower"), slope.sel(interval="upper")
    outcome: Outcome = "undecided"
    if slope.size:
        outcome = "holds" if bool((low > -1 + WITHIN).all()) else "fails" if bool((high < -1 + WITHIN).any()) else "undecided"
    texts = [
        f"{float(one.slope.sel(quantity='token', interval='estimate').isel(layer=-1)):.2f} "
        f"(95 %: {float(low.sel(case=one.case)):.2f} to {float(high.sel(case=one.case)):.2f}) where H² reaches "
        f"{float(one.h_squared.max()):.2f}, g = {sharp_exponent(float(one.h_squared.max())):.2f} as L → ∞"
        for one in (part.isel(case=i) for i in range(part.sizes["case"]))
    ]
    return Verdict(
        "Q2",
        "Is 1/L lost, as predicted, where some layer of the recursion has H² >= 1/2?",
        outcome,
        f"Slope of the squared token error after the last layer: {'; '.join(texts) or 'nan, no such case'}.",
    )


def breaking_window(data: xr.Dataset) -> tuple[xr.DataArray, xr.DataArray]:
    """First and last layer at which the closure should break: from 'linear' to 'frozen', or where the band itself passes."""
    early, late = np.fmin(data.predicted_edge, data.predicted_crossing), np.fmin(data.predicted_frozen, data.predicted_crossing)
    return early, late


def _breaking(data: xr.Dataset) -> Verdict:
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
    return Verdict(
        "Q2",
        "Does the recursion alone say at which layer the closure breaks?",
        "undecided" if not count else "holds" if share > 0.9 else "holds in part" if share > 0.5 else "fails",
        f"Of {count} stacks and lengths that break, or should, {exact} do between the layer that leaves 'linear' (L < e^(2σ²), or "
        f"a band above {float(data.threshold):g}) and the one that is 'frozen', {near} within one layer of that; the other {calm} "
        f"neither should nor do; the furthest off is by {float(off.max()):g} layers. At L = {longest:g} these are "
        f"{int(last.sum())}, off by at most {float(away.where(last, 0).max()):g}.",
    )


def _root(squares: xr.DataArray, errors: xr.DataArray) -> tuple[str, bool]:
    """Root of the mean over layers with its error, in words, and whether it is told from 0."""
    square, error = float(squares.mean()), float(errors.mean())
    root = math.sqrt(max(square, 0.0))
    known = square > 3 * error
    return (f"{root:.3f} ± {error / (2 * root):.3f}" if known else f"below {math.sqrt(root**2 + 3 * error):.3f}"), known


def _level(data: xr.Dataset) -> Verdict:
    part = data.isel(layer=slice(1, None))
    off = abs(part.measured_level - part.level)
    limit = allowed(off.size)
    spread = np.hypot(part.measured_level_error, part.level_error)
    room = LEVEL_WITHIN * part.level.clip(min=0) + limit * spread
    # over layers, per stack: mean level and the mean of what was measured; layers are correlated, so their errors are added
    texts, resolved = [], []
    for i in range(part.sizes["normalised"]):
        one = part.isel(normalised=i)
        told, known = zip(*(_root(one[name], one[f"{name}_error"]) for name in ("level", "measured_level")), strict=True)
        resolved.append(all(known))
        texts.append(f"{one.kind.values!s} d = {int(one.dim)}: {told[0]}, {told[1]}")
    return Verdict(
        "Q2",
        "With normalisation, does the error of the closure stop falling with L at the predicted level?",
        "fails"
        if not bool((off <= room).all())
        else "holds"
        if all(resolved)
        else "holds in part"
        if any(resolved)
        else "undecided",
        f"Relative error at infinite length, root mean square over layers, predicted and measured: {'; '.join(texts)}.",
    )


def _normalised(data: xr.Dataset) -> Verdict:
    last = data.normalised_error.isel(normalised_length=-1, layer=slice(1, None))
    worst = np.sqrt(last.max("layer"))
    dims = sorted({int(each) for each in data.dim.values})
    texts = [f"{float(worst[data.dim.values == dim].max()):.2f} (d = {dim})" for dim in dims]
    scores = float(data.normalised_score_variance.max())
    broken = bool((worst > THRESHOLD).any())
    all_broken = bool((worst > THRESHOLD).all())
    length = int(data.normalised_length[-1])
    return Verdict(
        "Q2",
        "With V of size 1, does normalisation keep the closure from breaking?",
        "fails" if all_broken else "holds in part" if broken else "holds",
        f"Without it these stacks leave the linear regime at layers {int(data.plain_edge.min())} to {int(data.plain_edge.max())} "
        f"(L = {length}); with it the score variance never exceeds {scores:.2f}, and the largest relative token error over layers "
        f"is {', '.join(texts)} at L = {length}.",
    )


def _frozen(data: xr.Dataset) -> Verdict:
    lengths = common_lengths(data)
    part = tame(data, lengths[-1]).isel(layer=-1)
    last = np.sqrt(part.frozen.sel(length=lengths[-1]) / part.raw.sel(quantity="token", length=lengths[-1]))
    fall = np.sqrt(part.frozen.sel(length=lengths[0]) / part.frozen.sel(length=lengths[-1]))
    fails = bool((last > 2).any())
    return Verdict(
        "Q2",
        "Would it do to leave the covariance as it was on entry?",
        "fails" if fails else "holds",
        f"After the last layer token outputs are then {float(last.min()):.1f} to {float(last.max()):.1f} times as wrong as with "
        f"the recursion at L = {lengths[-1]:g}, and from L = {lengths[0]:g} on the error falls by {float(fall.min()):.2f} to "
        f"{float(fall.max()):.2f} times only (a 1/L law: {math.sqrt(lengths[-1] / lengths[0]):.1f}).",
        control=True,
    )


def _transfer(data: xr.Dataset) -> Verdict:
    lengths = common_lengths(data)
    part = tame(data)
    final = np.sqrt(part.raw.sel(quantity="token", length=lengths[-1]).isel(layer=-1))
    broken = data.measured_breaking.sel(length=lengths[-1])
    failed = data.case[(broken <= data.layer.max()).values]
    scales = sorted({str(data.value_scale.sel(case=case).values) for case in failed.values})
    outcome: Outcome = "fails" if not final.size or float(final.max()) > THRESHOLD else "holds in part" if len(failed) else "holds"
    return Verdict(
        "C7",
        "Does a stack of softmax layers compute on a long prompt what its affine (linear-attention) limit does?",
        outcome,
        f"After {int(data.layer.max())} layers and L = {lengths[-1]:g} token outputs are off by {float(final.min()):.2%} to "
        f"{float(final.max()):.2%} (root mean square, {final.size} stacks), falling like 1/√L. "
        + (
            f"{len(failed)} of {data.sizes['case']} stacks break at that length, V of size {', '.join(scales)}."
            if len(failed)
            else ""
        ),
    )
