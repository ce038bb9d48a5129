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
LOSS, QUARTER = 0.01, 0.25  # of the loss; of the heads, and of the tokens that a state may hold
FIRST, FACTOR = 1.25, 2.0  # how near the exact law is, in the first layer and in all
CERTAIN = 2.0  # standard errors between losses that are different
POINTS = 0.05  # of accuracy, which a forward pass that is right may differ by


def within(data: xr.Dataset) -> xr.DataArray:
    """Which heads are within the tolerance, by text and length; NaN where it is not known."""
    error = data.affine_error
    found: xr.DataArray = (error <= float(data.attrs["tolerance"])).where(error.notnull())
    return found


@rule(
    "language",
    "Do the heads of the language model read only the mean and covariance of their prompt?",
    fails="The theory of long Gaussian prompts describes no head of it.",
)
def linear(data: xr.Dataset) -> Finding | None:
    """Holds where all heads are within the tolerance at some length, in part where some head is."""
    if "affine_error" not in data:
        return None
    good = within(data)
    counts, total = good.sum(HEADS).mean("text"), data.sizes["layer"] * data.sizes["head"]
    layers, heads = (data[name].values for name in HEADS)
    last, tolerance = int(data.length[-1]), float(data.attrs["tolerance"])
    always = np.argwhere((good.isel(length=-1) == 1).all("text").transpose(*HEADS).values)
    names = [f"L{layers[i]}H{heads[j]}" for i, j in always.tolist()]
    numbers = {
        f"heads within {tolerance:g} at {int(data.length[0])} tokens": counts[0],
        f"at {last} tokens": counts[-1],
        "of": total,
        "on every text": ", ".join(names) or "none",
        "share of queries in the linear regime": data.share_linear.isel(length=-1).mean(),
    }
    if "within_change" in data and float(data.within_count.max()) > 0:
        numbers["change of the loss with them replaced"] = (
            100 * data.within_change / data.loss,
            "%",
        )
    count = round(float(counts[-1])) if bool(counts[-1].notnull()) else 0
    return Finding(
        judged(
            bool((counts == total).any()),
            in_part=float(counts.max()) > 0,
            rests_on=[good.max(), data.affine_error.max()],
        ),
        "All heads of the language model read only mean and covariance.",
        f"{count} of {total} heads of the language model read only mean and covariance "
        f"at {last} tokens.",
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
    seen = within(data).sum(HEADS).mean("text")
    return Finding(
        judged(rate >= TRUSTED, in_part=rate >= 0.5, rests_on=[rate]),
        "Longer prompts make those heads linear of which the exact law foretells it.",
        "Longer prompts do not make heads linear as the exact law foretells.",
        {
            "promises": count,
            "kept": kept,
            f"heads within the tolerance from {int(data.length[0])} to {int(data.length[-1])} "
            "tokens": seen,
        },
    )


@rule(
    "language",
    "Does the score variance stay the same as the prompt grows?",
    fails="The law with the moments of one length is not the law of another.",
)
def variance(data: xr.Dataset) -> Finding | None:
    """Holds where nine heads in ten have |d ln σ²/d ln L| below 0.1, in part where the median
    has.
    """
    if "score_variance" not in data:
        return None
    values = data.score_variance.stack(each=("text", *HEADS)).transpose("length", "each")
    rows = values.dropna("each", how="any")
    if not rows.size:
        raise NotInRunError("no score variance is known at all lengths")
    slopes = np.array([log_slope(data.length, column) for column in rows.values.T])
    small = float(np.mean(abs(slopes) < 0.1))
    return Finding(
        judged(small >= 0.9, in_part=float(np.median(abs(slopes))) < 0.1, rests_on=[slopes]),
        "Score variances stay the same as the prompt grows.",
        f"Score variances change as the prompt grows, by L to the power "
        f"{float(np.median(slopes)):.2f} in the median.",
        {
            "d ln σ²/d ln L, quartiles": np.quantile(slopes, [0.25, 0.75]),
            "median": float(np.median(slopes)),
            "share of heads below 0.1": small,
            f"median score variance at {int(data.length[0])} tokens": values[0].median(),
            f"at {int(data.length[-1])} tokens": values[-1].median(),
        },
    )


@rule(
    "language",
    "Can a state of constant size serve a quarter of the heads at one percent of loss?",
    fails="A cache that does not grow has to keep nearly all heads as they are: it does not pay.",
)
def pays(data: xr.Dataset) -> Finding | None:
    """Holds where a state smaller than a quarter of the text does, in part where a larger does."""
    if "state_change" not in data:
        return None
    change, length = (
        (data.state_change / data.loss).mean("text"),
        int(data.attrs["replaced_length"]),
    )
    good = (change <= LOSS) & (data.replaced_share >= QUARTER)
    most = {
        str(state): float(data.replaced_share.where(change.sel(state=state) <= LOSS).max())
        for state in data.state.values
    }
    served = 100 * np.nan_to_num(list(most.values()))
    outcome = judged(
        bool((good & (data.state_size <= QUARTER * length)).any()),
        in_part=bool(good.any()),
        rests_on=[change.min(), data.state_size.min()],
    )
    return Finding(
        outcome,
        f"A small state of constant size serves {served.max():.0f} % of the heads at one percent "
        "of loss.",
        "No small state of constant size serves a quarter of the heads at one percent of loss.",
        {
            f"percent of heads served at {length} tokens, {name}": float(each)
            for name, each in zip(most, served, strict=True)
        }
        | {"smallest change of the loss": (100 * change.min(), "%")},
    )


@rule(
    "language",
    "Do moments serve more heads than a window of the same size?",
    fails="The room that moments take serves more heads where it holds last tokens.",
)
def adds(data: xr.Dataset) -> Finding | None:
    """Holds where they do at the longest prefix for every number of last tokens, in part for some.

    The window of the same size is interpolated in the logarithm of the size.
    """
    if "state_error" not in data:
        return None
    error = data.state_error.isel(length=-1)
    known = error.notnull().any(HEADS)
    share = (error <= float(data.attrs["tolerance"])).mean(HEADS).where(known).mean("text")
    window, own = (at(share, state=name).dropna("recent") for name in ("window", "moments"))
    sizes = data.size_of_state
    room, held = (
        at(sizes, state=name).sel(recent=each.recent)
        for name, each in (("window", window), ("moments", own))
    )
    fits = (held <= float(room.max())).values if room.size else np.zeros(held.size, dtype=bool)
    if not fits.any():
        raise NotInRunError("no state with moments is smaller than the largest window")
    as_large = np.interp(np.log(held[fits]), np.log(room), window)
    better = own.values[fits] > as_large
    return Finding(
        judged(bool(better.all()), in_part=bool(better.any()), rests_on=[share.max()]),
        "States with moments serve more heads than windows of the same size.",
        "A window of last tokens serves as many heads as a state with moments of the same size.",
        {
            f"percent of heads served by moments at {int(data.length[-1])} tokens": 100
            * own.values[fits],
            "by windows of the same size": 100 * as_large,
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
    others = at(loss, scaling=["none", "log-n", "YaRN"])

    def ahead(name: str) -> tuple[xr.DataArray, xr.DataArray]:
        """Whether it is below, and whether it is not above, each of the others."""
        gap = (others - at(loss, scaling=name)).drop_vars("scaling", errors="ignore")
        count = np.maximum(gap.notnull().sum("long_text"), 1)
        error = gap.std("long_text", ddof=1) / np.sqrt(count)
        mean = gap.mean("long_text")
        return mean > CERTAIN * error, mean > -CERTAIN * error

    below, fair = ahead("exact by head")
    beaten, even = ahead("exact, mean")
    # by position: none, log-n, YaRN
    part = (below[{"scaling": 0}] & fair.all("scaling")) | (
        beaten[{"scaling": 0}] & even.all("scaling")
    )
    texts, gaps = loss.sizes["long_text"], loss - at(loss, scaling="none")
    numbers = {"texts": texts, "loss without a factor": at(loss, scaling="none")}
    for name in data.scaling.values[1:]:
        numbers[f"change by {name}"] = gaps.sel(scaling=name).mean("long_text")
    error = gaps[{"scaling": slice(1, None)}].std("long_text", ddof=1) / np.sqrt(texts)
    if texts > 1:
        numbers["standard errors"] = error
    return Finding(
        judged(bool(below.all()), in_part=bool(part.any()), rests_on=[loss, error]),
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

    In part where all heads of the first layer, whose keys are independent rows, are within 1.25, or
    half of them.
    """
    if "table_law" not in data:
        return None
    ratio = np.sqrt(data.table_found / data.table_law)
    dims = ["kind", "table_layer", "table_head"]
    near = (abs(np.log(ratio)) <= np.log(FACTOR)).where(ratio.notnull()).mean(dims)
    first = ratio.isel(table_layer=0)
    worst = float(np.exp(abs(np.log(first)).max()))
    good = data.table_affine_error <= float(data.attrs["tolerance"])
    return Finding(
        judged(
            bool((near >= 0.9).all()),
            in_part=worst <= FIRST or float((first <= FIRST).mean()) >= 0.5,
            rests_on=[ratio.max(), near],
        ),
        "The exact law gives the error of TabPFN's heads in every layer.",
        f"The exact law gives the errors of TabPFN's first layer to a factor of {worst:.2f}, and "
        "not those of later layers.",
        {
            "found over expected in the first layer": first,
            f"median over later layers at {int(data.rows[0])} rows": ratio.isel(rows=0)[
                {"table_layer": slice(1, None)}
            ].median(),
            f"at {int(data.rows[-1])} rows": ratio.isel(rows=-1)[
                {"table_layer": slice(1, None)}
            ].median(),
            "share of heads within a factor of 2": near,
            "heads within the tolerance": good.sum(["table_layer", "table_head"]),
            "largest score variance in the first layer": data.table_score_variance.isel(
                table_layer=0
            ).max(),
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
            str(name): f"{float(one):.1f} % (known {float(known):.1f} %)"
            for name, one, known in zip(
                data["set"].values, 100 * data.fold_accuracy, 100 * data.known_accuracy, strict=True
            )
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


RULES = (linear, promised, variance, pays, adds, scaled, tables, accuracies, shuffled)
