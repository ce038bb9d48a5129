"""Is it the model that is known; is it linear anywhere; does the exact law hold for its heads; what
do heads matter; one layer.
"""

import numpy as np
import xarray as xr

from largeprompt.runs.judging import Answer, allowed_score, at, judged, log_slope, rule, span

CLAIM = "tabular"
# the law for the first layer, foretold errors, the law for all layers
CLOSE, WITHIN, FACTOR = 1.25, 0.25, 2.0


def ratio(data: xr.Dataset) -> xr.DataArray:
    """Root mean square of the affine error, found over expected by the exact law."""
    found: xr.DataArray = np.sqrt(data.found / data.law)
    return found


def share(chosen: xr.DataArray, known: xr.DataArray) -> float:
    """Share of the known entries that are chosen; NaN where none is known."""
    count = int(known.notnull().sum())
    return float((chosen & known.notnull()).sum()) / count if count else float("nan")


def median(values: xr.DataArray, place: float = 0.5) -> float:
    """Median, or another quantile, of the known entries; NaN where none is."""
    known = values.values[values.notnull().values]
    return float(np.quantile(known, place)) if len(known) else float("nan")


def generated(data: xr.Dataset) -> xr.Dataset:
    """Tables whose law is known."""
    return data.sel(
        kind=[kind for kind in ("two classes", "regression") if kind in data.kind.values]
    )


@rule(
    CLAIM,
    "Is this the model that is known by its accuracies on iris, wine and breast cancer?",
    fails="The forward pass is wrong.",
)
def known(data: xr.Dataset) -> Answer | None:
    """Within the standard errors of the known accuracy that one set in a million exceeds, and 5
    points at most.
    """
    if "fold_accuracy" not in data:
        return None
    some = data[["fold_accuracy", "known_accuracy", "fold_spread"]].dropna("kind")
    apart = abs(some.fold_accuracy - some.known_accuracy)
    limit = np.minimum(allowed_score(some.sizes["kind"]) * some.fold_spread, 0.05)
    found, told = (
        [f"{100 * float(each):.1f} %" for each in column]
        for column in (some.fold_accuracy, some.known_accuracy)
    )
    words = ", ".join(
        f"{kind} {one} (known {other})"
        for kind, one, other in zip(some.kind.values, found, told, strict=True)
    )
    return (
        judged(bool((apart <= limit).all()), rests_on=[data.fold_accuracy.max(), apart.max()]),
        f"{int(data.attrs['folds'])}-fold cross-validation, one pass each: {words}.",
    )


@rule(
    CLAIM,
    "Is the model in the linear regime anywhere?",
    fails="No head is replaceable by mean and covariance at any length.",
)
def linear(data: xr.Dataset) -> Answer:
    """Holds where all heads read mean and covariance at some length, in part where
    some head does.
    """
    good = data.affine_error <= float(data.attrs["tolerance"])
    counts = good.sum(["layer", "head"]).where(data.affine_error.notnull().any(["layer", "head"]))
    total = data.sizes["layer"] * data.sizes["head"]
    regime = share(data.alpha < 0.5, data.alpha)
    ends = [counts.isel(length=place).mean() for place in (0, -1)]
    return (
        judged(
            bool((counts == total).any()),
            in_part=float(counts.max()) > 0,
            rests_on=[counts.max(), regime],
        ),
        f"Of {total} heads {span(counts, '.0f')} are within {float(data.attrs['tolerance']):g} of "
        f"the affine read-out, by kind and length (mean {float(ends[0]):.1f} at N = "
        f"{int(data.length[0])}, {float(ends[1]):.1f} at {int(data.length[-1])}); "
        f"{100 * regime:.0f} % have α below 1/2.",
        f"Between {span(counts, '.0f').replace(' to ', ' and ')} of its {total} heads read only "
        "mean and covariance of the rows.",
    )


@rule(
    CLAIM,
    "Does the error of the first layer's heads, whose keys are independent rows, follow the exact "
    "law?",
    fails="Gaussian keys and values of the same moments are not what the first layer reads.",
)
def first_layer(data: xr.Dataset) -> Answer:
    """Holds within a factor of 1.25 for generated rows at every length."""
    found = ratio(generated(data)).isel(layer=0)
    variance = generated(data).score_variance.isel(layer=0)
    worst = float(np.exp(abs(np.log(found)).max()))
    return (
        judged(worst <= CLOSE, in_part=share(found <= CLOSE, found) >= 0.5, rests_on=[worst]),
        f"Found over expected root mean square: {span(found, '.2f')} over N = "
        f"{int(data.length[0])} to {int(data.length[-1])}, at "
        f"score variances of {span(variance, '.2g')}.",
        "In the first layer the exact law gives every head's error within a factor of "
        f"{worst:.2f}, at score variances up to {float(variance.max()):.0f}.",
    )


@rule(
    CLAIM,
    "Does the error of every head follow the exact law?",
    fails="Beyond the first layer keys are not Gaussian: what is left is shape, which no longer "
    "prompt takes away.",
)
def every_layer(data: xr.Dataset) -> Answer:
    """Holds where nine heads in ten are within a factor of 2 at every length, in part where they
    are so at the shortest.
    """
    found = ratio(data)
    near = abs(np.log(found)) <= np.log(FACTOR)
    shares = [share(near.isel(length=i), found.isel(length=i)) for i in range(data.sizes["length"])]
    medians = [median(found.isel(length=place)) for place in (0, -1)]
    return (
        judged(min(shares) >= 0.9, in_part=shares[0] >= 0.9, rests_on=[min(shares)]),
        f"Within a factor of {FACTOR:g} are "
        + ", ".join(
            f"{100 * part:.0f} % at N = {int(n)}"
            for part, n in zip(shares, data.length, strict=True)
        )
        + f" (median of found over expected {medians[0]:.2f} at the shortest, {medians[1]:.2f} at "
        "the longest).",
        f"Found over expected error: median {medians[0]:.2f} at {int(data.length[0])} rows, "
        f"{medians[1]:.2f} at {int(data.length[-1])}.",
    )


@rule(
    CLAIM,
    "Does a context of a quarter of the rows foretell the errors at the longest?",
    fails="Hidden states change with the number of rows: neither the law nor law and shape carry "
    "over.",
)
def foretold(data: xr.Dataset) -> Answer:
    """Holds where law and shape at a quarter of the longest length are within 25 % for four heads
    in five.
    """
    some = generated(data)
    place = data.sizes["length"] - 3
    if place < 0:
        raise ValueError("it needs three lengths")
    found = some.isel(length=place)
    rates = [share(abs(each - 1) <= WITHIN, each) for each in (found.foretold, found.law_foretold)]
    first = share(abs(found.foretold.isel(layer=0) - 1) <= WITHIN, found.foretold.isel(layer=0))
    return (
        judged(rates[0] >= 0.8, in_part=first >= 0.8, rests_on=rates),
        f"From N = {int(data.length[place])} to {int(data.length[-1])}: {100 * rates[0]:.0f} % of "
        "the heads within 25 % by law and "
        f"shape, {100 * rates[1]:.0f} % by the law alone; in the first layer {100 * first:.0f} %.",
    )


@rule(
    CLAIM,
    "Does the score variance stay the same as the context grows?",
    fails="The law at one length is not the law at another.",
)
def variance(data: xr.Dataset) -> Answer:
    """Holds where nine heads in ten have |d ln σ²/d ln N| below 0.1, in part where
    the median has.
    """
    some = generated(data).score_variance
    rows = some.stack(each=("kind", "layer", "head")).transpose("length", "each")
    slopes = xr.DataArray([log_slope(data.length, column) for column in rows.values.T])
    middle, most = median(abs(slopes)), share(abs(slopes) < 0.1, slopes)
    return (
        judged(most >= 0.9, in_part=middle < 0.1, rests_on=[middle]),
        f"d ln σ²/d ln N is {median(slopes):+.2f} in the median (quartiles "
        f"{median(slopes, 0.25):+.2f} and "
        f"{median(slopes, 0.75):+.2f}); {100 * most:.0f} % of the heads are below 0.1 in size.",
    )


@rule(
    CLAIM,
    "Can the heads that the audit finds within the tolerance be replaced without loss?",
    fails="A small error of a head's output can be a large one of the model's.",
)
def free(data: xr.Dataset) -> Answer:
    """Holds where replacing them changes the cross-entropy by less than 0.01, or than its sampling
    error, at every length.
    """
    change = at(data, replaced="within tolerance").cross_entropy_change
    error = at(data, replaced="within tolerance").cross_entropy_change_error
    all_of_them = at(data, replaced="all").cross_entropy_change
    count = int(change.notnull().sum())
    fine = (change <= 0.01) | (change <= 3 * error)
    return (
        judged(
            bool(fine.where(change.notnull(), True).all()),
            in_part=share(fine, change) >= 0.8,
            rests_on=[change.max()],
        ),
        f"Cross-entropy changes by {span(change, '+.3f')} over {count} kinds and lengths (median "
        f"{median(change):+.4f}); "
        f"with all heads replaced by {span(all_of_them, '+.2f')}.",
        f"Replacing the heads within tolerance changes the cross-entropy by {median(change):+.4f} "
        f"in the median, replacing all by {median(all_of_them):+.2f}.",
    )


@rule(
    CLAIM,
    "Does replacing heads in the audit's order cost less than at random, and the reverse order "
    "more?",
    fails="The error of a head's read-out does not say what the model loses by it.",
)
def order(data: xr.Dataset) -> Answer | None:
    """Holds where both are so for every kind, on average over the steps; in part where the audit's
    order beats the reverse.
    """
    if "change" not in data:
        return None
    inner = data.change.isel(
        heads_replaced=slice(0, max(1, data.sizes["heads_replaced"] - 1))
    ).mean("heads_replaced")
    audit, random, reverse = (at(inner, order=name) for name in ("audit", "random", "reverse"))
    right, half = (audit < random) & (random < reverse), audit < reverse
    here = data.change.isel(heads_replaced=data.sizes["heads_replaced"] // 2 - 1).mean("kind")
    words = ", ".join(f"{name} {float(here.sel(order=name)):+.3f}" for name in data.order.values)
    return (
        judged(bool(right.all()), in_part=bool(half.all()), rests_on=[audit, random, reverse]),
        f"Change of the cross-entropy with {int(here.heads_replaced)} heads replaced, mean over "
        f"kinds: {words}; in this order for {int(right.sum())} of {right.size} kinds of tables.",
    )


@rule(
    CLAIM,
    "On Gaussian linear regression, does it beat the best single head of softmax attention?",
    fails="A deep pretrained model that answers in ten classes is not better than one layer made "
    "for the task.",
)
def one_layer(data: xr.Dataset) -> Answer | None:
    """Holds where its squared error is lower at every length, in part at some."""
    if "one_softmax" not in data or "regression" not in data.kind.values:
        return None
    some = data.sel(kind="regression")
    own = at(some, replaced="none").squared_error
    won, linear = own < some.one_softmax, own < some.one_linear
    lengths = [int(n) for n in data.length[won.values]]
    best = span(own / some.bayes_squared_error, ".2f")
    return (
        judged(bool(won.all()), in_part=bool(won.any()), rests_on=[own, some.one_softmax]),
        f"E(ŷ - w·x)² over that of the best softmax head is {span(own / some.one_softmax, '.2f')}, "
        "of the best linear attention "
        f"{span(own / some.one_linear, '.2f')}, and of the best answer in ten classes {best}. "
        f"It beats the softmax head at N = {', '.join(map(str, lengths)) or 'none'}; linear "
        f"attention at {int(linear.sum())} lengths.",
        f"On linear regression it beats the best softmax head at {len(lengths)} of {len(own)} "
        f"lengths, linear attention at {int(linear.sum())}.",
    )


@rule(
    CLAIM,
    "On two Gaussian classes, is it as good as the best predictor, which one layer of linear "
    "attention is?",
    fails="The model does not use the whole of its context.",
)
def two_classes(data: xr.Dataset) -> Answer | None:
    """Holds where its cross-entropy is within 0.02 of the best at every length, in part at some."""
    if "two classes" not in data.kind.values:
        return None
    some = data.sel(kind="two classes")
    excess = at(some, replaced="none").cross_entropy - some.bayes_cross_entropy
    return (
        judged(
            bool((excess <= 0.02).all()), in_part=bool((excess <= 0.02).any()), rests_on=[excess]
        ),
        f"Cross-entropy above that of the best predictor: {span(excess, '.4f')}.",
    )


@rule(CLAIM, "Does it answer as well where the labels of the context are shuffled?", control=True)
def shuffled(data: xr.Dataset) -> Answer | None:
    """Fails where it is no better than the most frequent class by more than sampling (5 points)."""
    if "shuffled_accuracy" not in data:
        return None
    above = data.shuffled_accuracy - data.most_frequent
    return (
        judged(bool((above > 0.05).any()), rests_on=[above.max()]),
        f"Right answers less the share of the most frequent class: {span(100 * above, '+.1f')} "
        "points.",
    )


RULES = (
    known,
    linear,
    first_layer,
    every_layer,
    foretold,
    variance,
    free,
    order,
    one_layer,
    two_classes,
    shuffled,
)
