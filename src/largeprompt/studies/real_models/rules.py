"""What the study says of real models, by rules."""

import numpy as np
import xarray as xr

from largeprompt.runs.judging import (
    Finding,
    NotInRunError,
    allowed_score,
    at,
    judged,
    log_slope,
    rule,
)

HEADS = ["layer", "head"]
TRUSTED = 0.8  # share of promises that must be kept
LOSS, QUARTER = 0.01, 0.25  # of the loss; of the heads, and of the text that a state may hold
FIRST, FACTOR = 1.25, 2.0  # how near the exact law is, in the first layer and in all
CERTAIN = 2.0  # standard errors between losses that are different
POINTS = 0.05  # of accuracy, which a forward pass that is right may differ by


@rule(
    "language",
    "Do the heads of the language model read only the mean and covariance of their prompt?",
    fails="The theory of long Gaussian prompts describes no head of it.",
)
def linear(data: xr.Dataset) -> Finding | None:
    """Holds where all heads are within the tolerance at some length, in part where some head is."""
    if "affine_error" not in data:
        return None
    error, tolerance = data.affine_error, float(data.attrs["tolerance"])
    counts = (error <= tolerance).sum(HEADS).mean("text")
    total = error.sizes["layer"] * error.sizes["head"]
    layers, heads = (data[name].values for name in HEADS)
    always = (error.isel(length=-1) <= tolerance).all("text").transpose(*HEADS).values
    names = [f"L{layers[i]}H{heads[j]}" for i, j in np.argwhere(always).tolist()]
    last = int(data.length[-1])
    numbers: dict[str, object] = {
        f"heads of {total} within {tolerance:g} at {int(data.length[0])} tokens": counts[0],
        f"at {last} tokens": counts[-1],
        "on every text": ", ".join(names) or "none",
        "share of queries in the linear regime": data.share_linear.isel(length=-1).mean(),
    }
    if "within_change" in data and float(data.within_count.max()) > 0:
        change = (100 * data.within_change / data.loss, "%")
        numbers["change of the loss with them replaced"] = change
    return Finding(
        judged(
            bool((counts == total).any()), in_part=float(counts.max()) > 0, rests_on=[error.max()]
        ),
        "All heads of the language model read only mean and covariance.",
        f"{float(counts[-1]):.0f} of {total} heads of the language model read only mean and "
        f"covariance at {last} tokens.",
        numbers,
    )


@rule(
    "language",
    "Does a longer prompt bring those heads within the tolerance of which the law foretells it?",
    fails="The law at a short prompt promises nothing about a longer one: its score variance is "
    "another.",
)
def promised(data: xr.Dataset) -> Finding | None:
    """Holds where four promises in five are kept over all pairs of lengths, in part where half are.

    A promise is a head beyond the tolerance of which the law at this length foretells that it is
    within it at a longer one.
    """
    if "law_foretold" not in data:
        return None
    tolerance, told = float(data.attrs["tolerance"]), data.law_foretold
    before = data.affine_error.rename(length="made_at").reindex(made_at=data.made_at)
    made = (before > tolerance) & (told <= tolerance)
    count, kept = int(made.sum()), int((made & (data.affine_error <= tolerance)).sum())
    rate = kept / count if count else float("nan")
    return Finding(
        judged(rate >= TRUSTED, in_part=rate >= 0.5, rests_on=[rate]),
        "Longer prompts make those heads linear of which the exact law foretells it.",
        "Longer prompts do not make heads linear as the exact law foretells.",
        {"promises": count, "kept": kept},
    )


@rule(
    "language",
    "Does the score variance stay the same as the prompt grows?",
    fails="The law with the moments of one length is not the law of another.",
)
def variance(data: xr.Dataset) -> Finding | None:
    """Holds where |d ln σ²/d ln L| is below 0.1 for nine heads in ten, in part in the median."""
    if "score_variance" not in data:
        return None
    values = data.score_variance.stack(each=("text", *HEADS)).transpose("length", "each")
    rows = values.dropna("each", how="any")
    if not rows.size:
        raise NotInRunError("no score variance is known at all lengths")
    slopes = np.array([log_slope(data.length, column) for column in rows.values.T])
    middle, small = float(np.median(slopes)), float(np.mean(abs(slopes) < 0.1))
    return Finding(
        judged(small >= 0.9, in_part=np.median(abs(slopes)) < 0.1, rests_on=[slopes]),
        "Score variances stay the same as the prompt grows.",
        f"Score variances change with the prompt, like L to the power {middle:.2f} in the median.",
        {
            "d ln σ²/d ln L, median": middle,
            "quartiles": np.quantile(slopes, [0.25, 0.75]),
            "share of heads below 0.1": small,
            "median score variance by length": values.median("each"),
        },
    )


@rule(
    "language",
    "Does a state of constant size with moments serve more heads at one percent of loss than a "
    "window?",
    fails="A cache that does not grow has to keep nearly all heads as they are: it does not pay.",
)
def pays(data: xr.Dataset) -> Finding | None:
    """Holds where it serves a quarter of them and more than any window of last tokens.

    In part where some state does. A state counts where it is smaller than a quarter of the text.
    """
    if "state_change" not in data:
        return None
    change, length = (data.state_change / data.loss).mean("text"), data.attrs["replaced_length"]
    good = (change <= LOSS) & (data.state_size <= QUARTER * int(length))
    window, moments = (
        float(data.replaced_share.where(at(good, state=name)).max().fillna(0.0))
        for name in ("window", "moments")
    )
    most = f"{100 * max(window, moments):.0f} % of the heads at one percent of loss"
    return Finding(
        judged(
            moments >= QUARTER and moments > window,
            in_part=max(window, moments) >= QUARTER,
            rests_on=[change.min(), data.state_size.min()],
        ),
        f"A small state of constant size serves {most}, more than a window of last tokens.",
        f"A small window of last tokens serves {most}; moments of the other tokens add nothing."
        if window >= QUARTER
        else "No small state of constant size serves a quarter of the heads.",
        {f"share of heads served at {length} tokens, with moments": moments, "by a window": window}
        | {
            f"change of the loss with {float(each):g} of the heads, {name}": (
                100 * change.sel(replaced_share=each, state=name),
                "%",
            )
            for each in data.replaced_share.values
            for name in data.state.values
            if bool(change.sel(replaced_share=each, state=name).notnull().any())
        },
    )


@rule(
    "temperature",
    "Beyond the trained length, is the exact factor on each head's scores the best one?",
    fails="Keeping each head's effective tokens is not what the model's loss asks for.",
)
def scaled(data: xr.Dataset) -> Finding | None:
    """Holds where it has the least loss at every length, beyond two standard errors over texts.

    In part where it, or the mean of these factors for all heads, is better than no factor and not
    worse than log-n and YaRN at some length.
    """
    if "long_loss" not in data:
        return None
    loss = data.long_loss
    rules = at(loss, scaling=["none", "log-n", "YaRN"])

    def beats(name: str, errors: float) -> xr.DataArray:
        """Whether its loss is below that of each published rule, by so many standard errors."""
        gap = rules - at(loss, scaling=name).drop_vars("scaling")
        error = gap.std("long_text", ddof=1) / np.sqrt(gap.sizes["long_text"])
        found: xr.DataArray = gap.mean("long_text") > errors * error
        return found

    best = beats("exact by head", CERTAIN)
    part = [
        beats(name, CERTAIN).isel(scaling=0) & beats(name, -CERTAIN).all("scaling")
        for name in ("exact by head", "exact, mean")
    ]
    texts, gaps = loss.sizes["long_text"], loss - at(loss, scaling="none")
    numbers = {"texts": texts, "loss without a factor": at(loss, scaling="none")}
    for name in data.scaling.values[1:]:
        numbers[f"change by {name}"] = gaps.sel(scaling=name).mean("long_text")
    error = gaps[{"scaling": slice(1, None)}].std("long_text", ddof=1) / np.sqrt(texts)
    if texts > 1:
        numbers["standard errors"] = error
    return Finding(
        judged(bool(best.all()), in_part=bool((part[0] | part[1]).any()), rests_on=[loss, error]),
        "Beyond the trained length the exact factor on each head's scores has the least loss.",
        "Beyond the trained length the exact factor on each head's scores is not the best one.",
        numbers,
    )


@rule(
    "tables",
    "Does the exact law describe the heads of TabPFN layer by layer?",
    fails="Keys and values are not Gaussian even where they are independent rows.",
)
def tables(data: xr.Dataset) -> Finding | None:
    """Holds where nine heads in ten are within a factor of 2 of it at every number of rows.

    In part where half of the first layer, whose keys are independent rows, is within 1.25.
    """
    if "table_law" not in data:
        return None
    ratio = np.sqrt(data.table_found / data.table_law)
    near = (abs(np.log(ratio)) <= np.log(FACTOR)).where(ratio.notnull())
    share = near.mean(["kind", "table_layer", "table_head"])
    first = ratio.isel(table_layer=0)
    worst = float(np.exp(abs(np.log(first)).max()))
    good = (data.table_affine_error <= float(data.attrs["tolerance"])).where(ratio.notnull())
    return Finding(
        judged(
            bool((share >= 0.9).all()),
            in_part=float((abs(np.log(first)) <= np.log(FIRST)).mean()) >= 0.5,
            rests_on=[ratio.max(), share],
        ),
        "The exact law gives the errors of TabPFN's heads in every layer.",
        f"The exact law gives the errors of TabPFN's first layer to a factor of {worst:.2f}, and "
        "not those of later layers.",
        {
            "found over expected, first layer": first,
            "share of heads within a factor of 2, by rows": share,
            "heads within the tolerance": good.sum(["table_layer", "table_head"]),
        },
    )


@rule(
    "tables",
    "Is this the TabPFN that is known by its accuracies on iris, wine and breast cancer?",
    fails="The forward pass is wrong.",
)
def accuracies(data: xr.Dataset) -> Finding | None:
    """Holds within five points and the standard errors that one set in a million exceeds."""
    if "fold_accuracy" not in data:
        return None
    apart = abs(data.fold_accuracy - data.known_accuracy)
    limit = np.minimum(allowed_score(data.sizes["set"]) * data.known_error, POINTS)
    return Finding(
        judged(bool((apart <= limit).all()), rests_on=[apart]),
        "TabPFN has its known accuracies with our forward pass.",
        "TabPFN does not have its known accuracies with our forward pass.",
        {
            str(one["set"].values): f"{float(one):.1f} % (known {float(known):.1f} %)"
            for one, known in zip(100 * data.fold_accuracy, 100 * data.known_accuracy, strict=True)
        },
    )


@rule("language", "Is the language model as good on the same tokens in random order?", control=True)
def shuffled(data: xr.Dataset) -> Finding | None:
    """Fails where its loss is higher on every text."""
    if "shuffled_loss" not in data:
        return None
    gap = (data.shuffled_loss - data.loss).dropna("text")
    return Finding(
        judged(bool((gap <= 0).any()), rests_on=[gap.mean()]),
        numbers={"loss as written": (data.loss, "nats"), "shuffled": (data.shuffled_loss, "nats")},
    )


RULES = (linear, promised, variance, pays, scaled, tables, accuracies, shuffled)
