"""Is the model linear anywhere; does the law foretell longer prompts; what breaks; what do heads
cost that are read otherwise.
"""

import numpy as np
import xarray as xr

from largeprompt.runs.judging import Answer, at, judged, log_slope, rule, span

CLAIM = "languagemodel"
HEADS = ["layer", "head"]
TERMS = ("seen", "foretold", "variance", "shape", "order")
FACTOR, WITHIN, TRUSTED = 2.0, 0.25, 0.8  # the law, foretold errors, promises that are kept
# of the loss, and of the heads (and of the tokens, which a state must be smaller than)
LOSS, QUARTER = 0.01, 0.25


def spread(values: xr.DataArray, form: str = ".1f") -> str:
    """Mean over texts, with its standard error where there are several."""
    count = int(values.notnull().sum())
    mean = float(values.mean())
    return (
        f"{mean:{form}} ± {float(values.std(ddof=1)) / np.sqrt(count):{form}}"
        if count > 1
        else f"{mean:{form}}"
    )


def within(data: xr.Dataset) -> xr.DataArray:
    """Number of heads within the tolerance, by text, length and what is done with
    the first token.
    """
    error = data.affine_error
    count: xr.DataArray = (
        (error <= float(data.attrs["tolerance"])).sum(HEADS).where(error.notnull().any(HEADS))
    )
    return count


def promises(data: xr.Dataset, name: str) -> tuple[xr.DataArray, xr.DataArray, xr.DataArray]:
    """Heads beyond the tolerance that a shorter prefix foretells to be within it, those that are,
    and errors foretold over seen.
    """
    tolerance, told = float(data.attrs["tolerance"]), data[name]
    before = data.affine_error.rename(length="made_at").reindex(made_at=data.made_at)
    made = (before > tolerance) & (told <= tolerance)
    return made, made & (data.affine_error <= tolerance), told / data.affine_error


def close(ratio: xr.DataArray) -> float:
    """Share of the foretold errors that are within a quarter of what is seen; NaN where none is
    known.
    """
    return float((abs(ratio - 1) <= WITHIN).where(ratio.notnull()).mean())


@rule(
    CLAIM,
    "Is the model in the linear regime anywhere?",
    fails="No head is read by mean and covariance at any length.",
)
def linear(data: xr.Dataset) -> Answer:
    """Holds where all heads are within the tolerance at some length, in part where some head is."""
    counts, total = within(at(data, first="read")), data.sizes["layer"] * data.sizes["head"]
    without = within(at(data, first="left out"))
    ends = [spread(counts.isel(length=place)) for place in (0, -1)]
    regimes = [
        100 * float(data[f"share_{name}"].sel(first="read").isel(length=-1).mean())
        for name in ("linear", "heavy", "frozen")
    ]
    return (
        judged(
            bool((counts == total).any()),
            in_part=float(counts.max()) > 0,
            rests_on=[counts.max(), regimes],
        ),
        f"Of {total} heads {ends[0]} (mean over texts and its standard error) are within "
        f"{float(data.attrs['tolerance']):g} of the "
        f"affine read-out at {int(data.length[0])} tokens, {ends[1]} at {int(data.length[-1])}; "
        f"without the first token {spread(without.isel(length=0))} and "
        f"{spread(without.isel(length=-1))}. At {int(data.length[-1])} tokens {regimes[0]:.0f} % "
        f"of heads and queries are linear, {regimes[1]:.0f} % heavy, {regimes[2]:.0f} % frozen.",
        f"Of its {total} heads {float(counts.isel(length=0).mean()):.0f} read only mean and "
        f"covariance at {int(data.length[0])} "
        f"tokens, {float(counts.isel(length=-1).mean()):.0f} at {int(data.length[-1])}.",
    )


@rule(
    CLAIM,
    "Does the affine error follow the exact law with the score variance that is measured?",
    fails="Tokens of a text are not independent Gaussian keys and values: the law is a lower mark "
    "for most heads.",
)
def law(data: xr.Dataset) -> Answer:
    """Holds where nine heads in ten are within a factor of 2 at every length, in part where they
    are so at some.
    """
    ratio = data.affine_error / data.law_error
    near = (abs(np.log(ratio)) <= np.log(FACTOR)).where(ratio.notnull()).mean([*HEADS, "text"])
    middle = ratio.median(HEADS).mean("text")
    words = [
        f"first token {name}: {100 * float(near.sel(first=name)[0]):.0f} % at "
        f"{int(data.length[0])} tokens, {100 * float(near.sel(first=name)[-1]):.0f} % at "
        f"{int(data.length[-1])} (median of found over expected "
        f"{float(middle.sel(first=name)[0]):.2f} and {float(middle.sel(first=name)[-1]):.2f})"
        for name in data["first"].values
    ]
    return (
        judged(bool((near >= 0.9).all()), in_part=bool((near >= 0.9).any()), rests_on=[near]),
        f"Heads within a factor of {FACTOR:g} of the law, {'; '.join(words)}.",
    )


@rule(
    CLAIM,
    "Does a longer prompt bring those heads within the tolerance of which the law foretells it?",
    fails="The law at a shorter prefix is not a promise: the error that it takes for length does "
    "not go away.",
)
def promised(data: xr.Dataset) -> Answer:
    """Holds where four promises in five are kept, over all pairs of lengths, in part where half
    are.
    """
    made, kept, ratio = promises(at(data, first="read"), "law_foretold")
    count, came = int(made.sum()), int(kept.sum())
    rate = came / count if count else float("nan")
    start, last = int(data.attrs["explained_from"]), int(data.length[-1])
    some = (
        [int(each.sel(made_at=start, length=last).sum()) for each in (made, kept)]
        if start in data.made_at.values
        else [0, 0]
    )
    out = [int(each.sum()) for each in promises(at(data, first="left out"), "law_foretold")[:2]]
    return (
        judged(rate >= TRUSTED, in_part=rate >= 0.5, rests_on=[rate]),
        f"{came} of {count} promises are kept over all pairs of lengths and texts ({some[1]} of "
        f"{some[0]} from {start} to {last} tokens; {out[1]} of {out[0]} without the first token); "
        f"{100 * close(ratio):.0f} % of all foretold errors are within 25 %.",
        f"Of {count} promises of the law that a longer prompt brings a head within the tolerance, "
        f"{came} are kept.",
    )


@rule(
    CLAIM,
    "Do law and shape together foretell errors at longer prefixes?",
    fails="Neither length nor shape of the keys at a shorter prefix says what the error is at a "
    "longer one.",
)
def foretold(data: xr.Dataset) -> Answer:
    """Holds where four foretold errors in five are within 25 %, in part where more are than by the
    law alone.
    """
    some = at(data, first="left out")
    both, alone = (promises(some, name) for name in ("shape_foretold", "law_foretold"))
    known = both[2].notnull()
    if not bool(known.any()):
        raise ValueError("shape is known from 512 tokens on: it needs a longer prefix to foretell")
    rates = close(both[2]), close(alone[2].where(known))
    made, kept = (int(each.sum()) for each in both[:2])
    read = promises(at(data, first="read"), "shape_foretold")
    return (
        judged(rates[0] >= TRUSTED, in_part=rates[0] > rates[1], rests_on=rates),
        f"Without the first token {100 * rates[0]:.0f} % of the errors are within 25 % by law and "
        f"shape, {100 * rates[1]:.0f} % by the law alone; {kept} of {made} promises are kept. "
        f"With it {100 * close(read[2]):.0f} %, and {int(read[1].sum())} of {int(read[0].sum())} "
        "promises.",
    )


@rule(
    CLAIM,
    "Does the score variance stay the same as the prompt grows?",
    fails="The law at one length is not the law at another.",
)
def variance(data: xr.Dataset) -> Answer:
    """Holds where nine heads in ten have |d ln σ²/d ln L| below 0.1, in part where
    the median has.
    """
    rows = (
        data.score_variance.stack(each=("text", "first", *HEADS))
        .transpose("length", "each")
        .dropna("each", how="any")
    )
    slopes = np.array([log_slope(data.length, column) for column in rows.values.T])
    if not len(slopes):
        raise ValueError("no variance is known at all lengths")
    low, middle, high = np.quantile(slopes, [0.25, 0.5, 0.75])
    most = float(np.mean(abs(slopes) < 0.1))
    return (
        judged(most >= 0.9, in_part=float(np.median(abs(slopes))) < 0.1, rests_on=[middle]),
        f"d ln σ²/d ln L is {middle:+.2f} in the median (quartiles {low:+.2f} and {high:+.2f}); "
        f"{100 * most:.0f} % of the heads are below 0.1 in size.",
    )


def parts_of_the_gap(data: xr.Dataset, first: str) -> dict[str, float]:
    """Means over heads and texts of the terms of ln e(L)/e(n), by name."""
    some = at(data, first=first, term=list(TERMS)).explained
    known = some.where(some.notnull().all("term"))
    return {name: float(known.sel(term=name).mean()) for name in TERMS}


@rule(
    CLAIM,
    "Is it the shape of the keys that keeps a longer prompt from doing what the law foretells?",
    fails="Something else weighs more than the shape of the keys' law: scores whose variance "
    "grows, or the order of the keys.",
)
def breaks(data: xr.Dataset) -> Answer:
    """Holds where shape is more than half of the gap with and without the first token, in part with
    one of them.
    """
    start, last, words, shares = (
        int(data.attrs["explained_from"]),
        int(data.length[-1]),
        list[str](),
        list[float](),
    )
    for first in data["first"].values:
        term = parts_of_the_gap(data, str(first))
        gap = term["seen"] - term["foretold"]
        shares.append(term["shape"] / gap if gap > 0 else float("nan"))
        named = ", ".join(f"{name} {term[name]:+.2f}" for name in ("variance", "shape", "order"))
        ratios = f"foretold {np.exp(term['foretold']):.2f}, seen {np.exp(term['seen']):.2f}"
        words.append(f"first token {first}: {ratios}; gap {gap:+.2f} = {named}")
    most = [each > 0.5 for each in shares]
    return (
        judged(all(most), in_part=any(most), rests_on=shares),
        f"Errors at {last} over those at {start} tokens, geometric means, and the logarithms "
        f"between: {'; '.join(words)}.",
        f"From {start} to {last} tokens the law foretells errors {np.exp(term['foretold']):.2f} "
        "times as large; seen are "
        f"{np.exp(term['seen']):.2f} times (first token {first})."
        if np.isfinite(shares[-1])
        else "",
    )


@rule(
    CLAIM,
    "Are the tokens of a text as good as independent ones?",
    fails="Scores of neighbouring keys go together: a text is a shorter prompt than its number of "
    "tokens says.",
)
def dependence(data: xr.Dataset) -> Answer:
    """Holds where the effective number of keys is 0.8 of the real one in the median at every
    length, in part at some.
    """
    middle = data.effective_share.median(HEADS)
    mean = middle.mean("text")
    known = data.effective_share.isel(length=-1).values
    known = known[np.isfinite(known)]
    low = float(np.quantile(known, 0.1)) if len(known) else float("nan")
    return (
        judged(bool((mean >= 0.8).all()), in_part=bool((mean >= 0.8).any()), rests_on=[mean]),
        "Effective over real number of keys, from the autocorrelation of the scores: "
        f"{spread(middle.isel(length=0), '.2f')} at "
        f"{int(data.length[0])} tokens and {spread(middle.isel(length=-1), '.2f')} at "
        f"{int(data.length[-1])} in the median over heads, {low:.2f} for the lowest tenth.",
    )


@rule(
    CLAIM,
    "Can the heads within the tolerance be replaced by mean and covariance at one per cent of "
    "loss?",
    fails="A small error of a head's output can be a large one of the model's.",
)
def free(data: xr.Dataset) -> Answer:
    """Holds where the loss grows by less than a hundredth on every text, in part on average."""
    change = (data.within_change / data.loss).dropna("text")
    if not float(data.within_count.max()) > 0:
        return (
            "undecided",
            "No head is within the tolerance on the text that chooses, so that none is replaced.",
        )
    return (
        judged(
            bool((change <= LOSS).all()),
            in_part=float(change.mean()) <= LOSS,
            rests_on=[change.mean()],
        ),
        f"With the {float(data.within_count.mean()):.0f} heads replaced, chosen on another text, "
        "the loss of "
        f"{spread(data.loss, '.2f')} nats changes by {span(100 * change, '+.2f')} %.",
    )


@rule(
    CLAIM,
    "Does replacing heads in the audit's order cost less than at random, and the reverse order "
    "more?",
    fails="The error of a head's read-out does not say what the model loses by it.",
)
def order(data: xr.Dataset) -> Answer:
    """Holds where both are so on every text, on average over the steps before the last; in part
    where audit's beats random.
    """
    inner = (
        data.change.isel(heads_replaced=slice(0, max(1, data.sizes["heads_replaced"] - 1)))
        .mean("heads_replaced")
        .dropna("text")
    )
    audit, random, reverse = (at(inner, order=name) for name in ("audit", "random", "reverse"))
    right, half = (audit < random) & (random < reverse), audit < random
    here = data.change.isel(heads_replaced=0)
    words = ", ".join(f"{name} {spread(here.sel(order=name), '.2f')}" for name in data.order.values)
    return (
        judged(
            bool(right.all()),
            in_part=bool(half.all()),
            rests_on=[audit.mean(), random.mean(), reverse.mean()],
        ),
        f"Change of the loss in nats with {int(here.heads_replaced)} heads replaced: {words}; in "
        f"this order on {int(right.sum())} "
        f"of {right.size} texts, the audit's below the random one on {int(half.sum())}.",
    )


def state_name(components: int, recent: int) -> str:
    """A state in words."""
    kinds = {0: "", 1: " and mean and covariance"}
    return f"{recent} last tokens{kinds.get(components, f' and {components} clusters')}"


def served(data: xr.Dataset) -> xr.DataArray:
    """Share of heads that every state serves within the tolerance; NaN where it is no smaller than
    the cache.
    """
    error = data.state_error
    share: xr.DataArray = (
        (error <= float(data.attrs["tolerance"])).mean(HEADS).where(error.notnull().any(HEADS))
    )
    return share


@rule(
    CLAIM,
    "Can a state of constant size serve a quarter of the heads at one per cent of loss?",
    fails="A cache that does not grow would have to keep nearly all heads as they are: decoding "
    "with it does not pay.",
)
def pays(data: xr.Dataset) -> Answer:
    """Holds where a state smaller than a quarter of the text does (mean over texts), in part where
    a larger one does.
    """
    length = int(data.attrs["replaced_length"])
    change = (data.state_change / data.loss).mean("text")
    size = data.state_size
    good = (change <= LOSS) & (data.replaced_share >= QUARTER)
    flat = (
        change.where(good)
        .stack(state=("components", "replaced_recent", "replaced_share"))
        .dropna("state")
    )
    best = ""
    if flat.size:
        keys = sorted(
            flat.state.values.tolist(),
            key=lambda key: (-key[2], float(at(size, components=key[0], replaced_recent=key[1]))),
        )
        count, recent, part = keys[0]
        grows = 100 * float(
            at(change, components=count, replaced_recent=recent, replaced_share=part)
        )
        worth = float(at(size, components=count, replaced_recent=recent))
        best = (
            f"{100 * part:.0f} % of the heads at {grows:+.2f} % of loss, by "
            f"{state_name(count, recent)}, worth {worth:.0f} of {length} tokens"
        )
    window = at(change, components=0)
    alone = [
        float(each)
        for each in data.replaced_share.values
        if bool((window.sel(replaced_share=each) <= LOSS).any())
    ]
    told = served(data).mean("text").isel(length=-1)
    smaller = bool((good & (size <= QUARTER * length)).any())
    return (
        judged(smaller, in_part=bool(good.any()), rests_on=[change.min(), size.min(), told.max()]),
        f"Most heads within one per cent: {best or 'less than a quarter'}; first and last tokens "
        f"alone serve {100 * max(alone, default=0.0):.0f} %. At {int(data.length[-1])} tokens "
        f"{100 * float(told.max()):.0f} % of the heads at "
        f"most are within {float(data.attrs['tolerance']):g} of their output.",
        f"A constant state serves {best}." if best else "",
    )


@rule(
    CLAIM,
    "Do moments serve more heads than a window of the same size?",
    fails="The room that moments take would serve more heads if it held last tokens.",
)
def adds(data: xr.Dataset) -> Answer:
    """Holds where they do at the longest prefix for every number of last tokens, in
    part for some.
    """
    share, sizes = served(data).isel(length=-1).mean("text"), data.size_of_state
    if 0 not in data.components.values or data.sizes["components"] < 2:
        raise ValueError("it needs states with and without moments")
    window = share.sel(components=0)
    known = window.notnull().values
    words, better, most = list[str](), list[bool](), (-1.0, 0.0)
    for count in data.components.values[1:]:
        for recent in data.recent.values:
            size, found = (
                float(sizes.sel(components=count, recent=recent)),
                float(share.sel(components=count, recent=recent)),
            )
            if (
                np.isfinite(found)
                and known.any()
                and size <= float(sizes.sel(components=0)[known][-1])
            ):
                as_large = float(
                    np.interp(
                        np.log(size),
                        np.log(sizes.sel(components=0).values[known]),
                        window.values[known],
                    )
                )
                better.append(found > as_large)
                most = max(most, (found, as_large))
                words.append(
                    f"{100 * found:.0f} % against {100 * as_large:.0f} % "
                    f"({state_name(int(count), int(recent))})"
                )
    if not better:
        raise ValueError("no state with moments is smaller than the largest window")
    return (
        judged(all(better), in_part=any(better), rests_on=[share.max()]),
        f"At {int(data.length[-1])} tokens: {'; '.join(words)}.",
        f"At {int(data.length[-1])} tokens a state with moments, of a window's size, serves at "
        f"most {100 * most[0]:.0f} % of the heads, the window {100 * most[1]:.0f} %.",
    )


@rule(CLAIM, "Is the model as good on the same tokens in random order?", control=True)
def shuffled(data: xr.Dataset) -> Answer:
    """Fails where its loss is higher on every text."""
    gap = (data.shuffled_loss - data.loss).dropna("text")
    return (
        judged(bool((gap <= 0).any()), rests_on=[gap.mean()]),
        f"Loss {spread(data.loss, '.2f')} nats as written, {spread(data.shuffled_loss, '.2f')} in "
        "random order.",
    )


RULES = (
    linear,
    law,
    promised,
    foretold,
    variance,
    breaks,
    dependence,
    free,
    order,
    pays,
    adds,
    shuffled,
)
